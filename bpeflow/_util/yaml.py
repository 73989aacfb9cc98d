"""YAML that users give: plain values and nothing else, and no more of them than a config can have.

A few lines of YAML can stand for more values than any memory holds (lists of aliases of lists of aliases, and merge
keys likewise); a config that was fetched from somewhere shall not be able to do that.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from bpeflow.errors import ConfigError

_LONGEST = 1 << 20  # characters
_MOST_VALUES = 100_000


class _Loader(yaml.SafeLoader):
    """Makes plain values only, as its base does; bounded where merge keys multiply the entries of mappings."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        _check_number(len(node.value))


def read_yaml(path: Path) -> dict[str, Any]:
    """Read one YAML mapping. Raises `ConfigError` for what is none, or is none that could be a config."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_LONGEST + 1)
    except OSError as error:
        raise ConfigError(f"cannot read the config {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from error
    if len(text) > _LONGEST:
        raise ConfigError(f"{path} is no config: it has more than {_LONGEST:,} characters")
    try:
        values = parse_yaml(text)
    except ConfigError as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from error.__cause__
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: need lines of the form `key: value`, found a {type(values).__name__}")
    if odd := [key for key in values if not isinstance(key, str)]:
        raise ConfigError(f"{path}: {odd[0]!r} is no name of a setting")
    return values


def parse_yaml(text: str) -> Any:
    """Return the value that a text in YAML stands for. Raises `ConfigError` with what is wrong with it."""
    try:
        value = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise ConfigError(" ".join(str(error).split())) from error
    except RecursionError as error:
        raise ConfigError("it is nested too deeply") from error
    except ValueError as error:  # such as the 31st of February
        raise ConfigError(str(error)) from error
    _check_values(value)
    return value


def _check_values(value: Any) -> None:
    """Count all values, each as often as it is referred to; a list that contains itself has no end of them."""
    values, found = [value], 0
    while values:
        value = values.pop()
        if isinstance(value, dict):
            values += value.values()
        elif isinstance(value, list | tuple | set):
            values += value
        found += 1
        _check_number(found + len(values))


def _check_number(values: int) -> None:
    if values > _MOST_VALUES:
        raise ConfigError(f"it stands for more than {_MOST_VALUES:,} values, by aliases or as they are")
