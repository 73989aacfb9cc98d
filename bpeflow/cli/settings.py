"""What users read about settings: help lines, the commented config and the settings page, from one description each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import BaseModel, ByteSize

from bpeflow.config import Settings, SourceSettings

#: Groups of settings, in the order in which they are listed.
GROUPS = ("corpus", "pre-tokens", "pipeline", "learning", "run")


@dataclass(frozen=True)
class SettingDescription:
    """A setting, as its field in `bpeflow.config` describes it.

    Attributes:
        key: the dotted name, such as ``monitor.interval``.
        description: one line.
        default: the default as text.
        example: a value worth showing.
        group: one of `GROUPS`.
    """

    key: str
    description: str
    default: str
    example: Any
    group: str

    def help_line(self) -> str:
        """Return the help of a flag."""
        return self.description + (f" (default: {self.default})" if self.default not in ("false", "[]", "none") else "")


def describe_setting(key: str) -> SettingDescription:
    """Describe the setting of a dotted name."""
    return next(setting for setting in all_settings() if setting.key == key)


def all_settings(model: type[BaseModel] = Settings, prefix: str = "") -> Iterator[SettingDescription]:
    """Describe all settings of a model, those in sections included."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from all_settings(field.annotation, f"{prefix}{name}.")
            continue
        extra = field.json_schema_extra
        assert isinstance(extra, dict), f"{name} is not described"  # noqa: S101
        yield SettingDescription(
            key=prefix + name,
            description=field.description or "",
            default=str(extra["unset"]) or _as_text(field.default),
            example=extra["example"],
            group=str(extra["group"]),
        )


def as_yaml() -> str:
    """Return a config that names every setting, commented out, with its description, default and an example."""
    lines = [
        "# Every setting of bpeflow, with its default. Uncomment what you want to change.",
        "# Each is also a flag (--set key=value) and a keyword of bpeflow.train_bpe.",
    ]
    for group in GROUPS:
        lines += ["", f"# ---- {group} ----"]
        section = ""
        for setting in all_settings():
            if setting.group != group:
                continue
            name, _, key = setting.key.rpartition(".")
            if name != section and name:
                lines += ["", f"#{name}:"]
            else:
                lines.append("")
            section = name
            indent = "  " if name else ""
            lines.append(
                f"# {indent}{setting.description[0].upper()}{setting.description[1:]}. Default: {setting.default}."
            )
            lines.append(f"#{indent}{key}: {_as_text(setting.example)}")
    return "\n".join(lines) + "\n"


def as_markdown() -> str:
    """Return the settings page."""
    lines = [
        "# Settings",
        "",
        "Written by `python -m bpeflow config --markdown`. Each setting can be given in a YAML config, as a flag",
        "(`--set key=value`), and as a keyword of `bpeflow.train_bpe` and `bpeflow.train`.",
    ]
    tables = [(group, [s for s in all_settings() if s.group == group]) for group in GROUPS]
    tables.append(("sources", list(all_settings(SourceSettings))))
    for group, settings in tables:
        lines += [
            "",
            f"## {group[0].upper()}{group[1:]}",
            "",
            "| setting | meaning | default | example |",
            "|---|---|---|---|",
        ]
        for setting in settings:
            cells = (f"`{setting.key}`", setting.description, setting.default, f"`{_as_text(setting.example)}`")
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _as_text(value: object) -> str:
    """Write a value as YAML on one line."""
    if isinstance(value, ByteSize):
        return value.human_readable(decimal=True).lower().replace(".0", "")
    plain = list(value) if isinstance(value, tuple) else value
    return (
        yaml.safe_dump(plain, default_flow_style=True, width=1000, allow_unicode=True).removesuffix("\n...\n").strip()
    )
