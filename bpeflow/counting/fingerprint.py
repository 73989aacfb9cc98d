"""`Fingerprint`: all that the counts of a corpus depend on, so that counts of different things are never added up."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from secrets import token_hex
from typing import Any

from bpeflow.config import CountSettings
from bpeflow.corpus.sources import CorpusEntry, input_files

#: Settings that the counts do not depend on; and those that are told in another way. Any other one, a new one too, is
#: part of the fingerprint.
_WITHOUT = frozenset(
    {"input", "exclude", "separator", "pattern", "scanner", "num_counter", "num_merger", "chunk_size", "small_input"}
    | {"memory_limit", "scratch_dir", "segment_size", "queue", "start_method"}
)

#: How many changes an error names, and how many characters it shows of a value.
_MOST_NAMED, _MOST_SHOWN = 5, 60


@dataclass(frozen=True)
class FingerprintSummary:
    """A fingerprint without its list of inputs.

    Attributes:
        settings: as in `Fingerprint`.
        files: the number of inputs.
        bytes: their total size, as far as it is known.
        sha256: a digest of the list.
    """

    settings: dict[str, Any]
    files: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Fingerprint:
    """What counts are made of.

    Attributes:
        settings: the settings that matter, and the version of Unicode, as JSON has them.
        inputs: for each file and stream its name, size (None where nobody can tell), and time of its last change in
            nanoseconds.
    """

    settings: Mapping[str, Any]
    inputs: Sequence[Sequence[Any]]

    @classmethod
    def of(cls, settings: CountSettings, regex: str, unicode: str, entries: Sequence[CorpusEntry]) -> Fingerprint:
        """Describe a corpus that is to be counted with these settings, whose pattern is `regex`."""
        fields = frozenset(CountSettings.model_fields) - _WITHOUT
        values = settings.model_dump(mode="json", include=set(fields))
        values |= {"separator": settings.document_separator, "pattern": regex, "unicode": unicode}
        return cls(values, [_described(*part) for entry in entries for part in input_files(entry)])

    def to_json(self) -> str:
        """Everything, as text."""
        return json.dumps({"settings": self.settings, "inputs": self.inputs}, indent=0)

    @classmethod
    def from_json(cls, text: str) -> Fingerprint:
        """Read what `to_json` wrote."""
        values = json.loads(text)
        return cls(values["settings"], values["inputs"])

    @cached_property
    def digest(self) -> str:
        """Equal for equal ones only."""
        return sha256(self.to_json().encode()).hexdigest()

    def summary(self) -> FingerprintSummary:
        """Return the form that fits in a report."""
        return FingerprintSummary(
            settings=dict(self.settings),
            files=len(self.inputs),
            bytes=sum(size or 0 for _, size, *_ in self.inputs),
            sha256=sha256(json.dumps(self.inputs).encode()).hexdigest(),
        )

    def differences(self, earlier: Fingerprint) -> list[str]:
        """Say what is not as it was."""
        before, now = ({path: tuple(rest) for path, *rest in which.inputs} for which in (earlier, self))
        changes = [
            *(f"{path} is gone" for path in before if path not in now),
            *(f"{path} is new" for path in now if path not in before),
            *(_change(path, before[path], now[path]) for path in now if path in before and before[path] != now[path]),
        ]
        if not changes and list(before) != list(now):
            changes = ["the input files are in another order"]
        return _few([*differing(earlier.settings, self.settings), *changes])

    def differences_from_summary(self, earlier: FingerprintSummary) -> list[str]:
        """Describe what has changed since an earlier summary."""
        now = self.summary()
        changes = differing(earlier.settings, now.settings)
        if (earlier.files, earlier.bytes, earlier.sha256) != (now.files, now.bytes, now.sha256):
            changes.append(
                f"the input was {earlier.files} file(s) of {earlier.bytes} bytes and is {now.files} of {now.bytes}, "
                "and names, sizes or modification times differ"
            )
        return _few(changes)


def _described(name: str, size: int | None, modified: int, place: str) -> list[Any]:
    if place == "file":
        return [os.path.abspath(name), size, modified]
    # Of what comes by a pipe, or from the caller, nobody knows whether it is what it was: it is taken for another.
    return [name, size, modified if place == "url" else token_hex(8)]


def differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Say which settings differ."""
    keys = dict.fromkeys([*before, *now])
    return [
        f"{key} was {_shown(before.get(key))} and is {_shown(now.get(key))}"
        for key in keys
        if before.get(key) != now.get(key)
    ]


def _shown(value: object) -> str:
    """A value, or the beginning of a long one, such as a pattern."""
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "…"


def _change(path: str, before: Sequence[int], now: Sequence[int]) -> str:
    if before[0] != now[0]:
        return f"{path} had {before[0]} bytes and has {now[0]}"
    return f"{path} has been written to since"


def _few(changes: Sequence[str]) -> list[str]:
    more = len(changes) - _MOST_NAMED
    return [*changes[:_MOST_NAMED], *([f"and {more} more changes"] if more > 0 else [])]
