"""Settings from YAML, flags and keyword arguments: reading, overriding and validating them.

A validation error of pydantic becomes a line with the key, its description and an example, or with the nearest key.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ByteSize, ValidationError

from bpeflow._util.text import close_match, one_line, short_repr
from bpeflow.config.fields import Section, Setting, all_settings, as_text
from bpeflow.config.sections import EngineSettings, MonitorSettings, OutputSettings
from bpeflow.config.settings import Settings
from bpeflow.errors import ConfigError, ConfigNotFoundError, SettingsError, UnknownSettingError

SettingsType = TypeVar("SettingsType", bound=BaseModel)
_ALTERNATIVES = frozenset({"vocab_size", "vocab_sizes"}), frozenset({"input", "sources"})

#: The arguments that a config may have besides settings, each with the first command that has it.
ARGUMENTS = {"tokenizer": "encode", "out": "encode", "baseline": "evaluate"}

_SECTIONS: dict[str, type[Section]] = {"engine": EngineSettings, "monitor": MonitorSettings, "output": OutputSettings}

#: Words of pydantic's messages, and ours.
_WORDS = {
    "Input should be": "must be",
    "tuple": "list",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    "could not parse value and unit from byte string": "need a size such as 8mb",
    "could not interpret byte unit: ": "need a size such as 8mb, not of ",
}

#: Limit on the text of a config: far above any real config, and far below the memory of any machine.
_MAX_CHARACTERS = 1 << 20

#: Numbers that YAML 1.1 reads in base 8 or 60: 010 is 8, and 1:30 is 90.
_NOT_DECIMAL = re.compile(r"[-+]?(0[0-7_]+|[1-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?)")

log = logging.getLogger(__name__)


def make_settings(model: type[SettingsType], values: Mapping[str, Any]) -> SettingsType:
    """Validate `values` as `model`.

    Raises `SettingsError` if some are invalid, with a line for each, and `UnknownSettingError` if a key is unknown.
    """
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        lines = [one_line(_explain(model, details)) for details in error.errors()]
        is_unknown = any(details["type"] == "extra_forbidden" for details in error.errors())
        raise (UnknownSettingError if is_unknown else SettingsError)("\n".join(lines)) from None


def load_values(path: Path | None, overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Read the settings of a training from a YAML config, and override them as `override` does.

    Settings of other commands are left out, and named in a message. Raises `ConfigError`, as `read_config` does.
    """
    values = read_config(path)
    if ignored := [key for key in values if key not in Settings.model_fields]:
        log.info("%s: settings of other commands are ignored: %s", path, ", ".join(ignored))
    return override({key: value for key, value in values.items() if key not in ignored}, overrides or {})


def read_config(path: Path | None) -> dict[str, Any]:
    """Return the values of a YAML config for any command; dotted keys override their sections.

    Raises:
        ConfigError: it is not a config. `UnknownSettingError` if it has keys that no command has.
    """
    values = override({}, {} if path is None else read_yaml(path))
    unknown = [key for key in values if key not in Settings.model_fields and not command_with(key)]
    if unknown:
        lines = [one_line(f"{path}: {_unknown(key, *_models().values())}") for key in unknown]
        raise UnknownSettingError("\n".join(lines))
    return values


def override(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` updated by `overrides`, whose keys may be dotted (``monitor.interval``).

    A setting replaces its alternatives, too.
    """
    plain, dotted = {}, {}
    for key, value in overrides.items():
        section, _, name = key.partition(".")
        if name and section in _SECTIONS:
            dotted[section, name] = value
        else:
            plain[key] = value
    replaced = set(plain).union(*(keys for keys in _ALTERNATIVES if not keys.isdisjoint(plain)))
    result = {**{key: value for key, value in values.items() if key not in replaced}, **plain}
    for (section, name), value in dotted.items():
        inside = _SECTIONS[section].expand(result.get(section) or {})
        if isinstance(inside, Mapping):  # otherwise validation reports it
            result[section] = {**inside, name: value}
    return result


def _explain(model: type[BaseModel], details: Any) -> str:
    """Explain one entry of `ValidationError.errors` for a model of settings."""
    key = ".".join(map(str, details["loc"]))
    if details["type"] == "extra_forbidden":
        return _unknown(key, model)
    if details["type"] == "missing":
        return f"{key} is missing{_meaning(model, key)}"
    message: str = details["msg"].removeprefix("Value error, ")
    if not key:
        return message
    for theirs, ours in _WORDS.items():
        message = message.replace(theirs, ours)
    if details["type"] != "value_error":  # of pydantic
        is_size = (setting := _setting(model, key)) is not None and setting.metavar == "SIZE"
        message = re.sub(
            r"\d{5,}",
            lambda number: as_text(ByteSize(number[0])) if is_size else f"{int(number[0]):,}",
            message.partition(", unable to")[0],
        )
    if details["type"] in ("string_too_short", "too_short"):
        message = "must not be empty"
    if details["type"] == "model_type":
        message = "need lines of the form `key: value` below it"
    meaning = "" if details["type"] == "value_error" else _meaning(model, key)
    return f"{key}: {message}, found {short_repr(details['input'])}{meaning}"


def _unknown(key: str, *models: type[BaseModel]) -> str:
    """Refuse a key, with the one known to the models that is most like it, in any section."""
    settings = [setting for model in models for setting in all_settings(model)]
    names = [setting.key for setting in settings]
    known = {name.rpartition(".")[2]: name for name in reversed(names)} | {name: name for name in (*_SECTIONS, *names)}
    for workers in ("threads", "num_threads", "num_counter"):
        if workers in names:
            known |= {"num_workers": workers, "num_processes": workers}
    flags = {flag.lstrip("-"): setting.key for setting in settings for flag in setting.flags}
    close = close_match(whole := _without_indices(key), known | flags)
    if whole != key and whole in names:
        hint = f"items of a list cannot be set singly: give the whole list, as {key.partition('.')[0]}=[…]"
    elif key not in flags and (command := command_with(key)):
        hint = f"a setting of {command}"
    elif close is not None:
        hint = f"did you mean {(known | flags)[close]}?"
    else:
        hint = f"`bpeflow {'help encode' if models == (_models()['encode'],) else 'config'}` lists all settings"
    return f"unknown setting {key} ({hint})"


def command_with(key: str) -> str:
    """Return the command that has a setting or one of `ARGUMENTS`, or an empty string."""
    return next((name for name, model in _models().items() if key in model.model_fields), ARGUMENTS.get(key, ""))


def _models() -> dict[str, type[BaseModel]]:
    """Return the settings of the commands that have some of their own."""
    from bpeflow.config.encoding import EncodeSettings  # which a training does without

    return {"train": Settings, "encode": EncodeSettings}


def _meaning(model: type[BaseModel], key: str) -> str:
    """Return the description of a setting, with an example."""
    found = _setting(model, key)
    return f" ({found.description}; for example {found.example})" if found else ""


def _setting(model: type[BaseModel], key: str) -> Setting | None:
    return next((setting for setting in all_settings(model) if setting.key == _without_indices(key)), None)


def _without_indices(key: str) -> str:
    """Return a key without the numbers of list entries: ``sources.weight`` for ``sources.2.weight``."""
    return ".".join(part for part in key.split(".") if not part.isdigit())


# ---- YAML from users: plain values only ----


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML mapping from a file. Raises `ConfigError` if it cannot be read or cannot be a config."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_MAX_CHARACTERS + 1)
    except OSError as error:
        is_missing = isinstance(error, FileNotFoundError)
        where = f" in {Path.cwd()}" if is_missing and not path.is_absolute() else ""
        kind = ConfigNotFoundError if is_missing else ConfigError
        raise kind(f"cannot read the config {path}: {error.strerror}{where}") from error
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
    if {"schema_version", "settings"} <= values.keys():
        raise ConfigError(
            f"{path} is the report of a run, not a config: put the values of `settings` into a config, or learn again "
            "from the run's counts by `bpeflow merge --counts FOLDER`"
        )
    if wrong_keys := [key for key in values if not isinstance(key, str)]:
        raise ConfigError(f"{path}: {wrong_keys[0]!r} is not the name of a setting")
    return values


def parse_yaml(text: str) -> Any:
    """Return the value of a YAML text. Raises `ConfigError` if it is malformed, ambiguous, or has aliases."""
    import yaml

    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if root is None:
            return None
        _check_node(root, set())
        return loader.construct_document(root)
    except yaml.YAMLError as error:
        raise ConfigError(_yaml_problem(error)) from error
    except RecursionError:
        raise ConfigError("it is nested too deeply") from None
    except ValueError as error:  # an impossible date, such as the 31st of February
        raise ConfigError(str(error)) from error


def _yaml_problem(error: Any) -> str:
    """Describe an error of PyYAML on one line: without the lines of text, whose marks need several lines."""
    marks = ((getattr(error, part, None), getattr(error, f"{part}_mark", None)) for part in ("context", "problem"))
    parts = [f"{text} in line {at.line + 1}, column {at.column + 1}" if at else text for text, at in marks if text]
    return ": ".join(parts) or " ".join(str(error).split())


def _check_node(node: Any, seen: set[int]) -> None:
    """Raise `ConfigError` for what YAML reads in another way than people do, and for aliases.

    With these, a few lines could be more values than fit in memory.
    """
    line = node.start_mark.line + 1
    if id(node) in seen:
        raise ConfigError(f"an alias repeats line {line}: quote the *name if it is text, or else repeat the values")
    seen.add(id(node))
    if node.id == "scalar":
        if node.tag.endswith((":int", ":float")) and _NOT_DECIMAL.fullmatch(node.value):
            raise ConfigError(
                f"{node.value} is not decimal in YAML: quote it if it is text, or else write it in decimal"
            )
        return
    lines: dict[tuple[str, str], int] = {}
    for child in node.value:
        key, value = child if node.id == "mapping" else (None, child)
        _check_node(value, seen)
        if key is not None:
            _check_node(key, seen)
            line, name = key.start_mark.line + 1, (key.tag, str(key.value))
            if name in lines:  # PyYAML would take the last value without a word
                raise ConfigError(f"{key.value} is given twice, in line {lines[name]} and in line {line}: remove one")
            lines[name] = line
