"""`bpeflow config`: print every setting."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from textwrap import wrap
from typing import Any

import yaml

from bpeflow.cli.parser import Parser
from bpeflow.config import Setting, Settings, all_settings, load_values

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
    parser.add_argument("--print", action="store_true", help="print them (default)")
    parser.add_argument("--config", metavar="FILE", type=Path, help="YAML config whose values to show")
    return parser


def run_config(options: Namespace) -> None:
    """Print the settings."""
    print(as_yaml(load_values(options.config)), end="")  # noqa: T201


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
    for group, settings in by_group():
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
            lines += [f"# {line}" for line in wrap(f"{meaning(setting)} {default}", _WIDTH - 2)]
            if key in inside:
                lines.append(f"{indent}{key}: {value_as_yaml(inside[key])}")
            else:
                lines.append(f"# {indent}{key}: {value_as_yaml(setting.extra['example'])}")
    return "\n".join(lines) + "\n"


def by_group() -> list[tuple[str, list[Setting]]]:
    """Return the groups of settings, in order."""
    return [(group, [setting for setting in all_settings(Settings) if setting.group == group]) for group in _GROUPS]


def meaning(setting: Setting) -> str:
    """Return everything that is said about a setting but its default."""
    description = setting.description
    return f"{description[0].upper()}{description[1:]}. {setting.extra['details']}".strip()


def value_as_yaml(value: object) -> str:
    """Write a value as YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=1000, allow_unicode=True)
    return text.removesuffix("\n...\n").strip()
