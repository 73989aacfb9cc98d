"""`bpeflow config`: print every setting."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bpeflow._util.yaml import read_yaml
from bpeflow.cli.options import new_parser
from bpeflow.cli.settings import as_markdown, as_yaml

_DESCRIPTION = """\
Print every setting with its description, default and an example, as a commented YAML config.

  python -m bpeflow config --print > mine.yaml
  python -m bpeflow config --print --config configs/quickstart.yaml     with the values of a config
"""


def run(argv: Sequence[str]) -> int:
    """Print the settings."""
    parser = new_parser("python -m bpeflow config", _DESCRIPTION)
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--print", action="store_true", help="as a commented YAML config (default)")
    forms.add_argument("--markdown", action="store_true", help="as a page of tables (docs/settings.md)")
    parser.add_argument("--config", metavar="FILE", type=Path, help="YAML config whose values to show")
    options = parser.parse_args(argv)
    values = read_yaml(options.config) if options.config else {}
    print(as_markdown() if options.markdown else as_yaml(values), end="")  # noqa: T201
    return 0
