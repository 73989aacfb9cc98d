"""`bpeflow config`: print every setting, or check a config."""

from __future__ import annotations

from collections.abc import Sequence

from bpeflow.cli.options import new_parser
from bpeflow.cli.settings import as_markdown, as_yaml

_DESCRIPTION = """\
Print every setting with its description, default and an example, as a commented YAML config.

  python -m bpeflow config --print > mine.yaml
"""


def run(argv: Sequence[str]) -> int:
    """Print the settings."""
    parser = new_parser("python -m bpeflow config", _DESCRIPTION)
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--print", action="store_true", help="as a commented YAML config (default)")
    forms.add_argument("--markdown", action="store_true", help="as a page of tables (docs/settings.md)")
    options = parser.parse_args(argv)
    print(as_markdown() if options.markdown else as_yaml(), end="")  # noqa: T201
    return 0
