"""Settings from YAML, flags and keyword arguments: reading, overriding and validating them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from bpeflow._util.text import one_line
from bpeflow._util.validation import explain, nearest
from bpeflow.config.settings import Settings
from bpeflow.errors import ConfigError, SettingsError

SettingsType = TypeVar("SettingsType", bound=BaseModel)
_SIZES = frozenset({"vocab_size", "vocab_sizes"})
_SECTIONS = frozenset({"engine", "monitor", "output", "queue"})


def make_settings(
    model: type[SettingsType], values: Mapping[str, Any], where: str = "", elsewhere: Collection[str] = ()
) -> SettingsType:
    """Validate `values` as `model`.

    Args:
        model: the settings.
        values: their values.
        where: the config that the values are from, for messages.
        elsewhere: the keys, which may be dotted, of values that are not from there.

    Raises:
        SettingsError: values are invalid; the message has a line for each.
    """
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        lines = []
        for details in error.errors():
            key = ".".join(map(str, details["loc"]))
            is_there = where and not any(f"{key}.".startswith(f"{other}.") for other in elsewhere)
            lines.append(one_line((f"{where}: " if is_there else "") + explain(model, details)))
        raise SettingsError("\n".join(lines)) from None


def load_settings(path: Path | None, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Read a YAML config and override its values by `overrides`, whose keys may be dotted (``monitor.interval``).

    Raises `ConfigError` for a missing or malformed file, and for unknown or invalid settings.
    """
    return make_settings(Settings, load_values(path, overrides), str(path) if path is not None else "", overrides or ())


def load_values(path: Path | None, overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the values that `load_settings` validates. Raises `ConfigError` for a missing or malformed file."""
    values: dict[str, Any] = {}
    if path is not None:
        from bpeflow._util.yaml import read_yaml  # PyYAML, which settings from keywords do not need

        values = read_yaml(path)
    return override(values, overrides or {})


def replace(values: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` updated by `others`. Either of `vocab_size` and `vocab_sizes` replaces the other."""
    replaced = set(others) if _SIZES.isdisjoint(others) else {*others, *_SIZES}
    return {**{key: value for key, value in values.items() if key not in replaced}, **others}


def override(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` updated by `overrides`, whose keys may be dotted (``monitor.interval``)."""
    result = replace(values, {key: value for key, value in overrides.items() if "." not in key})
    for dotted_key, value in overrides.items():
        section, dot, key = dotted_key.partition(".")
        if not dot:
            continue
        if section not in _SECTIONS:
            raise ConfigError(f"unknown setting {dotted_key}{nearest(Settings, dotted_key)}")
        inside = result.get(section) or {}
        if isinstance(inside, Mapping):  # otherwise validation reports it
            result[section] = {**inside, key: value}
    return result
