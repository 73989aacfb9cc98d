"""`write_page`: run folders in, one HTML file out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bpeflow._util.atomic import atomic_path
from bpeflow._util.text import short_names
from bpeflow.reporting.charts import Charts
from bpeflow.reporting.data import load_runs
from bpeflow.reporting.page import make_page


def write_page(folders: Sequence[Path], path: Path, sample: Sequence[str] = ()) -> None:
    """Write a page about one run, or about several side by side.

    Args:
        folders: the folders of finished runs.
        path: the file to write.
        sample: inputs to measure bytes per token on; by default a sample of the runs' own corpora.

    Raises:
        ConfigError: a folder has no finished run, `sample` has no text, or matplotlib is not installed.
        FormatError: a file in a folder is damaged.
    """
    charts = Charts()
    resolved = {str(folder): folder.resolve() for folder in folders}
    names = short_names([str(folder) for folder in resolved.values()])
    runs = load_runs({names[str(folder)]: folder for folder in resolved.values()}, sample)
    page = make_page(runs, charts)
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8", errors="backslashreplace")
