"""YAML from users: plain values only, and no aliases, which could make a few lines more values than fit in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from bpeflow.errors import ConfigError

#: Limit on the text of a config: far above any real config, and far below the memory of any machine.
_MAX_CHARACTERS = 1 << 20


class _Loader(yaml.SafeLoader):
    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            alias = self.peek_event()  # type: ignore[no-untyped-call]
            problem = f"*{alias.anchor} is an alias: quote it if it is text, or else repeat the values"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=alias.start_mark)
        return super().compose_node(parent, index)


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
    """Return the value of a YAML text. Raises `ConfigError` if it is malformed or has aliases."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506 -- a kind of SafeLoader
    except yaml.MarkedYAMLError as error:
        raise ConfigError(_explain(error)) from error
    except yaml.YAMLError as error:
        raise ConfigError(" ".join(str(error).split())) from error
    except RecursionError as error:
        raise ConfigError("it is nested too deeply") from error
    except ValueError as error:  # an impossible date, such as the 31st of February
        raise ConfigError(str(error)) from error


def _explain(error: yaml.MarkedYAMLError) -> str:
    """Return a problem with its place and its context: a bracket that is never closed may be many lines before."""
    place, problem = _place(error.problem_mark), error.problem or "malformed"
    context = f" ({error.context}{_place(error.context_mark, ' from ')})" if error.context else ""
    return f"{place}{': ' if place else ''}{problem}{context}"


def _place(mark: yaml.Mark | None, before: str = "") -> str:
    return f"{before}line {mark.line + 1}, column {mark.column + 1}" if mark else ""
