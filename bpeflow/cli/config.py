"""`bpeflow config`: print every setting."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bpeflow._util.yaml import read_yaml
from bpeflow.cli.parser import Parser, new_parser
from bpeflow.cli.setting_help import as_markdown, as_yaml

_DESCRIPTION = """\
Print every setting with its description, default and an example, as a commented YAML config.

  bpeflow config --print > mine.yaml
  bpeflow config --print --config configs/quickstart.yaml     with the values of a config
"""


def make_parser() -> Parser:
    """Return the parser of the command's flags."""
    parser = new_parser("config", _DESCRIPTION)
    forms = parser.flag_group("form").exclusive()
    forms.add_argument("--print", action="store_true", help="as a commented YAML config (default)")
    forms.add_argument("--markdown", action="store_true", help="as a page of tables (docs/settings.md)")
    parser.add_argument("--config", metavar="FILE", type=Path, help="YAML config whose values to show")
    return parser


def run(argv: Sequence[str]) -> int:
    """Print the settings."""
    options = make_parser().parse(argv)
    values = read_yaml(options.config) if options.config else {}
    print(as_markdown() if options.markdown else as_yaml(values), end="")  # noqa: T201
    return 0
