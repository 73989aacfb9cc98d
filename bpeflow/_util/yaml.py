"""YAML from users: plain values only, and a bounded number of them.

With aliases (lists of aliases of lists of aliases, or nested merge keys) a few lines of YAML can expand to more values
than fit in memory. A config downloaded from somewhere must not be able to do that.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from bpeflow.errors import ConfigError

#: Limits on the text and the values of a config: far above any real config, and far below the memory of any machine.
_MAX_CHARACTERS = 1 << 20
_MAX_VALUES = 100_000


class _Loader(yaml.SafeLoader):
    """A `SafeLoader` that limits the number of entries that merge keys copy into a mapping."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        _check_number(len(node.value))


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML mapping from a file. Raises `ConfigError` if it cannot be read or cannot be a config."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_MAX_CHARACTERS + 1)
    except OSError as error:
        raise ConfigError(f"cannot read the config {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from error
    if len(text) > _MAX_CHARACTERS:
        raise ConfigError(f"{path} is not a config: it has more than {_MAX_CHARACTERS:,} characters")
    try:
        values = parse_yaml(text)
    except ConfigError as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from error.__cause__
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: need lines of the form `key: value`, found a {type(values).__name__}")
    if wrong_keys := [key for key in values if not isinstance(key, str)]:
        raise ConfigError(f"{path}: {wrong_keys[0]!r} is not the name of a setting")
    return values


def parse_yaml(text: str) -> Any:
    """Return the value of a YAML text. Raises `ConfigError` if it is malformed or has too many values."""
    try:
        value = yaml.load(text, _Loader)  # noqa: S506 -- a kind of SafeLoader
    except yaml.YAMLError as error:
        raise ConfigError(" ".join(str(error).split())) from error
    except RecursionError as error:
        raise ConfigError("it is nested too deeply") from error
    except ValueError as error:  # an impossible date, such as the 31st of February
        raise ConfigError(str(error)) from error
    _check_values(value)
    return value


def _check_values(value: Any) -> None:
    """Count all values, each as often as it is referenced. A list that contains itself exceeds any limit."""
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
    if values > _MAX_VALUES:
        raise ConfigError(f"it has more than {_MAX_VALUES:,} values, aliases included")
