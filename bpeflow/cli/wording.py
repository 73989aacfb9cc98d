"""How messages name settings on the command line. Imports none of the dependencies.

The library names settings as keywords: ``threads: must be``, ``use bad_records='skip'``, ``resume=True``. A user of the
command line reads ``--threads: must be``, ``use --bad_records skip`` and ``--resume``. One with a config reads
``use bad_records: skip``, and the name of a setting from it follows the name of the config.
"""

from __future__ import annotations

import re
from argparse import Namespace
from ast import literal_eval
from collections.abc import Mapping
from contextlib import suppress
from shlex import quote
from typing import TYPE_CHECKING, Any

from bpeflow.errors import ConfigError

if TYPE_CHECKING:
    from bpeflow.config import Setting

#: What the destination of a setting's flag begins with; its key follows.
SETTING = "setting "

#: A name in the middle of a message, and not part of a path, of a quotation or of a longer name.
_NAME = r"(?<![\w./'\"`=-]){}(?![\w/'\"`=(:→[]|\.\w)"

#: A keyword argument with its value, which is a literal of Python.
_KEYWORD = re.compile(r"""(?<![^ (])([a-z]\w*)=(True|\d+|'[^']*'|"[^"]*"|\[[^]]*\]|\{[^}]*\})(?![\w/]|[,.]\w)""")

#: The wording of the command that runs.
_wordings: list[Wording] = []


def worded(message: str) -> str:
    """Return a message in the wording of the command that runs."""
    return _wordings[-1](message) if _wordings else message


def begin_wording(settings: Mapping[str, Setting] | None = None, options: Namespace | None = None) -> None:
    """Word messages for a command with flags for these settings, and with these options; or for none."""
    _wordings[:] = [Wording(settings or {}, options or Namespace())]


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
        message = _KEYWORD.sub(self._keyword, message)
        for key, setting in self._settings.items():
            if "_" in key and not setting.is_switch and self._is_flag(key):
                message = re.sub(_NAME.format(re.escape(key)), setting.flags[0], message)
        return message

    def _is_flag(self, key: str) -> bool:
        """Return whether a setting is named as its flag: in a config, the user reads on in its terms."""
        return self._config is None or key in self._given

    def _keyword(self, match: re.Match[str]) -> str:
        """Return a keyword argument as a flag, or as a line of the config."""
        key, literal = match.groups()
        flag = self._settings[key].flags[0] if key in self._settings else f"--{key}"
        try:
            value = literal_eval(literal)
        except (SyntaxError, ValueError):  # it is not ours
            return match[0]
        if value is True:
            return flag
        if key in self._settings and not self._is_flag(key):
            return f"{key}: {value}"
        if isinstance(value, dict):
            value = ",".join(f"{name}={inner}" for name, inner in value.items())
        return " ".join([flag, *(quote(str(word)) for word in (value if isinstance(value, list) else [value]))])

    def _is_in_config(self, key: str) -> bool:
        if self._config is None:
            return False
        from bpeflow.config.reading import read_config  # with its dependencies, which this command has imported

        values: Mapping[str, Any] = {}
        with suppress(ConfigError):  # it may be what the message is about
            values = read_config(self._config)
        section, _, name = key.rpartition(".")
        return name in ((values.get(section) or {}) if section else values)
