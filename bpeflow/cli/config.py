"""`bpeflow config`: print every setting."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from textwrap import wrap
from typing import Any

import yaml

from bpeflow.cli.parser import Parser
from bpeflow.config import Setting, Settings, SourceSettings, all_settings, load_values
from bpeflow.config.encoding import EncodeSettings
from bpeflow.config.settings import CorpusSettings

_DESCRIPTION = """\
Print every setting with its description, default and an example, as a commented YAML config.

  bpeflow config --print > mine.yaml
  bpeflow config --print --config configs/quickstart.yaml     with the values of a config
"""


#: Width of the comments in a config.
_WIDTH = 100

#: Groups of settings, in the order in which they are listed.
_GROUPS = ("corpus", "pre-tokens", "pipeline", "learning", "run")


def config_parser() -> Parser:
    """Return the parser of its flags."""
    parser = Parser("config", _DESCRIPTION)
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--print", action="store_true", help="as a commented YAML config (default)")
    forms.add_argument("--markdown", action="store_true", help="as a page of tables (docs/settings.md)")
    parser.add_argument("--config", metavar="FILE", type=Path, help="YAML config whose values to show")
    return parser


def run_config(options: Namespace) -> None:
    """Print the settings."""
    values = load_values(options.config)
    print(as_markdown() if options.markdown else as_yaml(values), end="")  # noqa: T201


# ---- the two forms ----


def as_yaml(values: Mapping[str, Any] | None = None) -> str:
    """Return a config that names every setting, with its description, default and an example.

    Args:
        values: the settings to give a value; the rest are commented out.
    """
    values = values or {}
    lines = [
        "# Every setting of bpeflow. Those commented out have their default, and show an example.",
        "# Written by `bpeflow config --print`. Each is also a flag: --set key=value, most also --key value.",
    ]
    for group, settings in _by_group():
        lines += ["", f"# ---- {group} ----"]
        section = ""
        for setting in settings:
            name, _, key = setting.key.rpartition(".")
            inside = values.get(name, {}) if name else values
            indent = "  " if name else ""
            lines.append("")
            if name and name != section:
                lines.append(f"{'' if inside else '# '}{name}:")
            section = name
            default = "Required." if setting.default == "required" else f"Default: {setting.default}."
            lines += [f"# {line}" for line in wrap(f"{_meaning(setting)} {default}", _WIDTH - 2)]
            if key in inside:
                lines.append(f"{indent}{key}: {_as_yaml(inside[key])}")
            else:
                lines.append(f"# {indent}{key}: {_as_yaml(setting.extra['example'])}")
    return "\n".join(lines) + "\n"


def as_markdown() -> str:
    """Return the settings page."""
    lines = [
        "# Settings",
        "",
        "Each setting can be given in a YAML config, as a flag (`--key value`; `sources` and settings in a section by",
        "`--set key=value`), as a keyword of `bpeflow.Tokenizer.train` and `bpeflow.train_bpe`, and in a mapping for",
        "`bpeflow.train`. `bpeflow encode` and `Tokenizer.encode_file` take the settings of the corpus, `engine`, and",
        "those under *Encoding*. `bpeflow config --markdown` prints this page.",
    ]
    corpus = {setting.key for setting in all_settings(CorpusSettings)}
    encoding = [setting for setting in all_settings(EncodeSettings) if setting.group and setting.key not in corpus]
    sources = list(all_settings(SourceSettings))
    for group, settings in [*_by_group(), ("sources", sources), ("encoding", encoding)]:
        lines += ["", f"## {group[0].upper()}{group[1:]}", ""]
        lines += ["| setting | meaning | default | example |", "|---|---|---|---|"]
        for setting in settings:
            default = setting.default.replace("<", "\\<")  # which could begin an HTML tag
            cells = (f"`{setting.key}`", _meaning(setting), default, f"`{_as_yaml(setting.extra['example'])}`")
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _by_group() -> list[tuple[str, list[Setting]]]:
    return [(group, [setting for setting in all_settings(Settings) if setting.group == group]) for group in _GROUPS]


def _meaning(setting: Setting) -> str:
    description = setting.description
    return f"{description[0].upper()}{description[1:]}. {setting.extra['details']}".strip()


def _as_yaml(value: object) -> str:
    """Write a value as YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=1000, allow_unicode=True)
    return text.removesuffix("\n...\n").strip()
