"""What users read about settings: help lines, the commented config and the settings page, from one description each."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from textwrap import wrap
from typing import Any, Literal, get_args, get_origin

import yaml
from pydantic import BaseModel, ByteSize

from bpeflow.config import Settings, SourceSettings

#: Width of the comments in a config.
_WIDTH = 100

#: Groups of settings, in the order in which they are listed.
GROUPS = ("corpus", "pre-tokens", "pipeline", "learning", "run")


@dataclass(frozen=True)
class SettingDescription:
    """A setting, as its field in `bpeflow.config` describes it.

    Attributes:
        key: the dotted name, such as ``monitor.interval``.
        description: one line.
        details: further sentences, or nothing.
        default: the default as text.
        example: a value worth showing.
        group: one of `GROUPS`.
        choices: all possible values, if they are a few words.
    """

    key: str
    description: str
    details: str
    default: str
    example: Any
    group: str
    choices: tuple[str, ...]

    def help_line(self) -> str:
        """Return the help of a flag."""
        unremarkable = ("false", "[]", "none", "required")
        return self.description + (f" (default: {self.default})" if self.default not in unremarkable else "")

    def default_sentence(self) -> str:
        """Return the default as a sentence."""
        return "Required." if self.default == "required" else f"Default: {self.default}."

    def assignment(self) -> str:
        """Return the flag that gives the setting the example's value."""
        return f"--set {self.key}={shlex.quote(_as_text(self.example))}"


def describe_setting(key: str) -> SettingDescription:
    """Describe the setting of a dotted name. Raises `KeyError` if there is none."""
    return settings_by_key()[key]


@cache
def settings_by_key() -> Mapping[str, SettingDescription]:
    """Describe all settings, by dotted name."""
    return {setting.key: setting for setting in all_settings()}


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
            details=str(extra["details"]),
            default=str(extra["unset"]) or _as_text(field.default),
            example=extra["example"],
            group=str(extra["group"]),
            choices=_choices(field.annotation),
        )


def as_yaml(values: Mapping[str, Any] | None = None) -> str:
    """Return a config that names every setting, with its description, default and an example.

    Args:
        values: the settings to give a value; all others are commented out.
    """
    values = values or {}
    lines = [
        "# Every setting of bpeflow. Those commented out have their default, and show an example.",
        "# Written by `bpeflow config --print`. Each is also a flag: --set key=value, some also --key value.",
    ]
    for group in GROUPS:
        lines += ["", f"# ---- {group} ----"]
        section = ""
        for setting in (setting for setting in all_settings() if setting.group == group):
            name, _, key = setting.key.rpartition(".")
            inside = values.get(name, {}) if name else values
            indent = "  " if name else ""
            lines.append("")
            if name and name != section:
                lines.append(f"{'' if inside else '# '}{name}:")
            section = name
            text = " ".join(filter(None, [_sentence(setting.description), setting.details, setting.default_sentence()]))
            lines += [f"# {line}" for line in wrap(text, _WIDTH - 2)]
            given = key in inside
            lines.append(
                f"{indent if given else '# ' + indent}{key}: {_as_text(inside[key] if given else setting.example)}"
            )
    return "\n".join(lines) + "\n"


def as_markdown() -> str:
    """Return the settings page."""
    lines = [
        "# Settings",
        "",
        "Written by `bpeflow config --markdown`. Each setting can be given in a YAML config, as a flag",
        "(`--set key=value`, common ones `--key value`), as a keyword of `bpeflow.Tokenizer.train` and of",
        "`bpeflow.train_bpe` (which has no default for `special_tokens`), and in a mapping for `bpeflow.train`.",
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
            meaning = f"{_sentence(setting.description)} {setting.details}".strip()
            default = setting.default.replace("<", "\\<")  # which could begin an HTML tag
            cells = (f"`{setting.key}`", meaning, default, f"`{_as_text(setting.example)}`")
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _choices(annotation: Any) -> tuple[str, ...]:
    """Return the words of the `Literal` in an annotation, if there is one."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return next(filter(None, map(_choices, get_args(annotation))), ())


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _as_text(value: object) -> str:
    """Write a value as YAML on one line."""
    if isinstance(value, ByteSize):
        return value.human_readable(decimal=True).lower().replace(".0", "")
    plain = list(value) if isinstance(value, tuple) else value
    return (
        yaml.safe_dump(plain, default_flow_style=True, width=1000, allow_unicode=True).removesuffix("\n...\n").strip()
    )
