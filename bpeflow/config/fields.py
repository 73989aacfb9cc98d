"""What settings are made of: fields with their descriptions, and the frozen models that they are in."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args, get_origin

from pydantic import BaseModel, ByteSize, ConfigDict, Field, model_validator


def setting(
    default: Any,
    description: str,
    details: str = "",
    *,
    example: Any,
    unset: str = "",
    group: str = "",
    flags: tuple[str, ...] | None = (),
    metavar: str = "",
    **options: Any,
) -> Any:
    """Return a field with everything that users read about it; nothing is described anywhere else.

    Args:
        default: the default.
        description: one line, a noun phrase, without the default; the help of a flag.
        details: sentences that configs and the settings page add to it.
        example: a value worth showing, as YAML would have it.
        unset: what a default of None means.
        group: the heading under which the setting is listed.
        flags: further names on the command line, besides the setting's own (a setting in a section has none of its
            own); None for a setting without a flag.
        metavar: what help calls the flag's value; by default, its type.
        options: as for `pydantic.Field`.
    """
    extra: dict[str, Any] = {"details": details, "example": example, "unset": unset, "group": group}
    extra |= {"flags": flags, "metavar": metavar}
    return Field(default=default, description=description, json_schema_extra=extra, **options)


@dataclass(frozen=True)
class Setting:
    """A setting, as the field that `setting` made describes it.

    Attributes:
        key: the dotted name, such as ``monitor.interval``.
        description: one line.
        annotation: the type of its values.
        default: the default as text.
        extra: the other arguments of `setting`: details, example, group, flags and metavar.
    """

    key: str
    description: str
    annotation: Any
    default: str
    extra: Mapping[str, Any]

    @property
    def group(self) -> str:
        """The heading under which it is listed."""
        return str(self.extra["group"])

    @property
    def help(self) -> str:
        """The description, with the default unless it is trivial."""
        unremarkable = ("false", "[]", "none", "required")
        return self.description + (f" (default: {self.default})" if self.default not in unremarkable else "")

    @property
    def example(self) -> str:
        """The example, as a flag or a config takes it."""
        example = self.extra["example"]
        return example if isinstance(example, str) else json.dumps(example)

    @property
    def flags(self) -> tuple[str, ...]:
        """The names of its flag; none if there is no flag."""
        names = self.extra["flags"]
        return () if names is None else names if "." in self.key else (f"--{self.key}", *names)

    @property
    def choices(self) -> tuple[str, ...]:
        """All possible values, if they are a few words."""
        literal = next((kind for kind in _types(self.annotation) if get_origin(kind) is Literal), None)
        return get_args(literal)

    @property
    def is_list(self) -> bool:
        """Whether it takes several values."""
        return any(get_origin(kind) is tuple for kind in _types(self.annotation))

    @property
    def is_switch(self) -> bool:
        """Whether its flag takes no value: it is either on or off, and off by default."""
        return self.annotation is bool and self.default == "false"

    @property
    def metavar(self) -> str:
        """What help calls its value."""
        types = {*_types(self.annotation)}
        kinds = {int: "N", float: "N", ByteSize: "SIZE", Path: "FOLDER"}
        by_type = next((name for kind, name in kinds.items() if kind in types), "TEXT")
        return self.extra["metavar"] or ("NAME" if self.choices else by_type)


def all_settings(model: type[BaseModel], prefix: str = "") -> Iterator[Setting]:
    """Yield all settings of a model, its sections and its sources. Settings of sources have no group."""
    for name, field in model.model_fields.items():
        extra = field.json_schema_extra
        if isinstance(extra, dict):
            default = str(extra["unset"]) or as_text(field.default)
            yield Setting(prefix + name, field.description or "", field.annotation, default, extra)
        for kind in _types(field.annotation):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from all_settings(kind, f"{prefix}{name}.")


def _types(annotation: Any) -> Iterator[Any]:
    """Yield a type and all types in it: the members of a union, the items of a list."""
    yield annotation
    for inner in get_args(annotation) if get_origin(annotation) is not Literal else ():
        yield from _types(inner)


def as_text(value: object) -> str:
    """Return a value as users write it: `16mb` for a size."""
    if isinstance(value, ByteSize):
        return value.human_readable(decimal=True).lower().replace(".0", "")
    if isinstance(value, tuple):
        return f"[{', '.join(map(as_text, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


class Frozen(BaseModel):
    """A model whose values do not change, and that knows all its keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def to_json(self, fields: set[str] | None = None) -> dict[str, Any]:
        """Return all values, or the values of some fields, in their JSON form."""
        # Not by `model_dump`, whose functions in Python turn Ctrl-C into an error of pydantic's.
        given = {name: value for name, value in vars(self).items() if fields is None or name in fields}
        values: dict[str, Any] = json.loads(json.dumps(given, default=_for_json))
        return values


def _for_json(value: BaseModel | os.PathLike[str]) -> Any:
    return vars(value) if isinstance(value, BaseModel) else os.fspath(value)


class Section(Frozen):
    """A section of settings. A single value in its place, as in ``engine: ray``, is the setting `main`."""

    main: ClassVar[str]

    @classmethod
    def expand(cls, value: Any) -> Any:
        """Return the mapping that a single value abbreviates."""
        return {cls.main: value} if isinstance(value, str | bool | list | tuple) else value

    @model_validator(mode="before")
    @classmethod
    def _expand(cls, value: Any) -> Any:
        return cls.expand(value)
