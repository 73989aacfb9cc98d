"""How messages name settings on the command line. Imports none of the dependencies.

The library names settings as configs and keywords do: ``threads: must be``, ``use bad_records: skip``, ``resume=True``.
A user of the command line reads ``--threads: must be``, ``use --bad_records skip`` and ``--resume``. The name of a
setting from a config follows the name of the config.
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from bpeflow.errors import ConfigError

if TYPE_CHECKING:
    from bpeflow.config import Setting

#: What the destination of a setting's flag begins with; its key follows.
SETTING = "setting "

#: A name in the middle of a message, and not part of a path, of a quotation or of a longer name.
_NAME = r"(?<![\w./'\"`=-]){}(?![\w/'\"`=(:→[]|\.\w)"

#: The wording of the command that runs, if it has flags of settings.
_wordings: list[Wording] = []


def worded(message: str) -> str:
    """Return a message in the wording of the command that runs, with flags in place of keyword arguments."""
    return (_wordings or [Wording({}, Namespace())])[-1](message)


def begin_wording(settings: Mapping[str, Setting] | None = None, options: Namespace | None = None) -> None:
    """Word messages for a command with flags for these settings, and with these options; or for none."""
    _wordings[:] = [Wording(settings, options)] if settings and options is not None else []


class Wording:
    """Names settings in messages as the user gave them, or can give them."""

    def __init__(self, settings: Mapping[str, Setting], options: Namespace) -> None:
        self._settings = settings
        self._given = {name.removeprefix(SETTING) for name in vars(options) if name.startswith(SETTING)}
        self._config = getattr(options, "config", None)

    def __call__(self, message: str) -> str:
        """Return a message with its settings named as flags, or after the config that the first one is from."""
        if found := re.match(r"(unknown )?([a-z0-9_]+(?:\.[a-z_]+)*)(?:\.\d+)*(?:: | (?=['\"]))", message):
            unknown, key = found.groups()
            if key in self._given and key in self._settings:
                message = f"{self._settings[key].flags[0]}: {message if unknown else message[found.end() :]}"
            elif self._is_in_config(key):
                message = f"{self._config}: {message}"
        message = re.sub(r"\b\w+=True \((--\w+)\)", r"\1", message)
        for key, setting in self._settings.items():
            # In a config, the user reads on in its terms.
            if key in message and (self._config is None or key in self._given):
                message = _with_flag(message, key, setting)
        return message

    def _is_in_config(self, key: str) -> bool:
        if self._config is None:
            return False
        from bpeflow.config.reading import read_config  # with its dependencies, which this command has imported

        values: Mapping[str, Any] = {}
        with suppress(ConfigError):  # it may be what the message is about
            values = read_config(self._config)
        section, _, name = key.rpartition(".")
        return name in ((values.get(section) or {}) if section else values)


def _with_flag(message: str, key: str, setting: Setting) -> str:
    """Replace a setting's name, and its name with a value, by its flag."""
    flag, name = setting.flags[0], re.escape(key)
    if setting.is_switch:
        return re.sub(rf"\b{name}(?:=True|: true(?: \({flag}\))?)", flag, message)
    values = "|".join(setting.choices) or r"auto|\d+"
    message = re.sub(rf"(?<=[ (]){name}: (?=(?:{values})\b(?! →))", f"{flag} ", message)
    return re.sub(_NAME.format(name), flag, message) if "_" in key else message
