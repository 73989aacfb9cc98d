"""`Fingerprint`: everything that the counts of a corpus depend on.

A run resumes only from counts with the same fingerprint, so counts of different corpora or settings are never mixed. It
is the manifest of a folder of segments, and, without the list of inputs, a part of the report of a run. A folder has
segments if it has a manifest; `counting.segments` makes them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Any

from bpeflow._util.atomic import read_json, sync_folder, write_json
from bpeflow._util.text import Pattern, format_count
from bpeflow.config import CountSettings
from bpeflow.corpus.files import InputFile
from bpeflow.errors import ResumeError
from bpeflow.pretokenize.normalizer import UNICODE_VERSION
from bpeflow.pretokenize.patterns import NAMED_PATTERNS, NAMED_REGEXES

MANIFEST_FILE = "manifest.json"

#: Names of the files in the folder, and of the temporary files that a killed run leaves behind.
_OWN_NAMES = re.compile(r"(\d{6,}|sum)(-[0-9a-f]+)?\.shard|\d{6,}\.json|(manifest|fingerprint)\.json|\..*\.part")

#: The length of the names of subfolders, which begin the digests of units.
SUBFOLDER = 16
_SUBFOLDER = re.compile(rf"[0-9a-f]{{{SUBFOLDER}}}")

#: The version of a folder of segments, including the format of shards.
VERSION = 4

#: Settings that the counts do not depend on, and settings that the fingerprint states in another form. Every other
#: setting, including any added in future, is part of the fingerprint.
_EXCLUDED = frozenset(
    {"input", "exclude", "separator", "pattern", "num_counter", "num_merger", "chunk_size", "executor"}
    | {"memory_limit", "scratch_dir", "segment_size"}
)

#: The most changes that an error lists, and the most characters of a value that it shows.
_MAX_CHANGES, _MAX_VALUE = 5, 60


@dataclass(frozen=True)
class FingerprintSummary:
    """A fingerprint without its list of inputs.

    Attributes:
        settings: as in `Fingerprint`.
        files: number of inputs.
        bytes: total size of the inputs whose size is known.
        sha256: digest of the list of inputs.
    """

    settings: dict[str, Any]
    files: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Fingerprint:
    """Everything that counts depend on.

    Attributes:
        settings: the settings that counts depend on, the Unicode version, and a hash of the units, as JSON values.
        inputs: name, size (None if unknown) and modification time in nanoseconds of each file and stream.
    """

    settings: Mapping[str, Any]
    inputs: Sequence[Sequence[Any]]

    @classmethod
    def of(
        cls,
        settings: CountSettings,
        regex: Pattern,
        unicode: str,
        entries: Sequence[InputFile],
        units: str | None = None,
    ) -> Fingerprint:
        """Return the fingerprint of a corpus and its settings.

        Args:
            settings: the settings.
            regex: regular expression of the pattern, or several.
            unicode: Unicode version that the pattern follows.
            entries: the corpus.
            units: a hash of the units, if their pairs or fragments are counted.
        """
        fields = frozenset(CountSettings.model_fields) - _EXCLUDED
        values = settings.to_json(set(fields))
        pattern = regex if isinstance(regex, str) else list(regex)  # as JSON has it
        values |= {"separator": settings.document_separator, "pattern": pattern, "unicode": unicode}
        if regex in NAMED_REGEXES:
            del values["unmatched"]
        if settings.normalizer:
            values["normalizer_unicode"] = UNICODE_VERSION
        else:
            del values["normalizer"]
        if units is not None:
            values["units"] = units
        return cls.of_files(values, entries)

    @classmethod
    def of_files(cls, settings: Mapping[str, Any], entries: Sequence[InputFile]) -> Fingerprint:
        """Return the fingerprint of settings, as JSON values, and of the files of a corpus."""
        return cls(settings, [_input(file) for entry in entries for file in entry.files])

    def summary(self) -> FingerprintSummary:
        """Return the fingerprint in a form short enough for a report."""
        return FingerprintSummary(
            settings=dict(self.settings),
            files=len(self.inputs),
            bytes=sum(size or 0 for _, size, *_ in self.inputs),
            sha256=sha256(json.dumps(self.inputs).encode()).hexdigest(),
        )

    def differences(self, earlier: Fingerprint) -> list[str]:
        """Describe the changes since an earlier fingerprint, a few of them if there are many."""
        before, now = ({path: tuple(rest) for path, *rest in fingerprint.inputs} for fingerprint in (earlier, self))
        changes = [
            *(f"{path} is {_absence(path)}" for path in before if path not in now),
            *(f"{path} is new" for path in now if path not in before),
            *(_change(path, before[path], now[path]) for path in now if path in before and before[path] != now[path]),
        ]
        if not changes and [*map(list, earlier.inputs)] != [*map(list, self.inputs)]:
            changes = ["the input files are in another order"]
        return _few([*setting_changes(earlier.settings, self.settings), *changes])

    def differences_from_summary(self, earlier: FingerprintSummary) -> list[str]:
        """Describe the changes since an earlier summary, as far as the summary has them."""
        now = self.summary()
        changes = setting_changes(earlier.settings, now.settings)
        if (earlier.files, earlier.bytes, earlier.sha256) != (now.files, now.bytes, now.sha256):
            changes.append(
                f"the input was {format_count(earlier.files, 'file')} of {earlier.bytes:,} bytes and is {now.files:,} "
                f"of {now.bytes:,}, and names, sizes or modification times differ"
            )
        return _few(changes)


def _input(file: InputFile) -> list[Any]:
    if file.location == "file":
        return [os.path.abspath(file.name), file.size, file.modified]  # noqa: PTH100 -- `Path.absolute` keeps ".."
    # A pipe or an iterable of the caller may hold other text every time, so a random value makes it differ from itself.
    return [file.name, file.size, file.modified if file.location == "url" else token_hex(8)]


def setting_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Describe each setting that differs between two mappings, by its path: ``sources.0.weight: 2 → 3``."""
    keys = dict.fromkeys([*before, *now])
    if not {"unmatched"} <= before.keys() & now.keys():  # a named pattern has none
        keys.pop("unmatched", None)
    return [change for key in keys for change in _setting_changes(key, before.get(key), now.get(key))]


def _setting_changes(key: str, before: Any, now: Any) -> list[str]:
    """Describe where two values of a setting differ: within mappings, and lists of mappings of the same length."""
    if before == now:
        return []
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        return [f"{key}.{change}" for change in setting_changes(before, now)]
    lists = isinstance(before, list) and isinstance(now, list) and len(before) == len(now)
    if lists and all(isinstance(value, Mapping) for value in (*before, *now)):
        pairs = enumerate(zip(before, now, strict=True))
        return [change for i, (one, other) in pairs for change in _setting_changes(f"{key}.{i}", one, other)]
    return [f"{key}: {_short_repr(key, before)} → {_short_repr(key, now)}"]


def _short_repr(key: str, value: object) -> str:
    if key == "pattern":
        value = next((name for name, regex in NAMED_PATTERNS.items() if regex == value), value)
    text = json.dumps(value) if value is None or isinstance(value, bool) else repr(value)  # as YAML has it
    return text if len(text) <= _MAX_VALUE else text[:_MAX_VALUE] + "…"


def _absence(path: str) -> str:
    return "not among the inputs now" if os.path.exists(path) else "gone"  # noqa: PTH110 -- as it is named


def _change(path: str, before: Sequence[int], now: Sequence[int]) -> str:
    if before[0] != now[0]:
        return f"{path} had {before[0]:,} bytes and has {now[0]:,}"
    return f"{path} has been modified since"


def _few(changes: Sequence[str]) -> list[str]:
    more = len(changes) - _MAX_CHANGES
    return [*changes[:_MAX_CHANGES], *([f"and {more} more changes"] if more > 0 else [])]


def write_manifest(folder: Path, fingerprint: Fingerprint) -> None:
    """Create the folder and the manifest. Raises `OSError`."""
    write_json(folder / MANIFEST_FILE, {"version": VERSION, **asdict(fingerprint)})


def has_manifest(folder: Path, fingerprint: Fingerprint) -> bool:
    """Return whether the folder has a manifest.

    Raises `ResumeError` if that is damaged, or has another fingerprint.
    """
    path = folder / MANIFEST_FILE
    try:
        values = read_json(path)
        if (version := values["version"]) != VERSION:
            raise ValueError(f"it has version {version}, this bpeflow reads {VERSION}")
        changes = fingerprint.differences(Fingerprint(values["settings"], values["inputs"]))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise ResumeError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ResumeError(
            f"{path} is damaged, or not a manifest of bpeflow ({error}): its segments cannot be resumed. Start over "
            "with restart=True or in another out_dir"
        ) from None
    if changes:
        raise ResumeError(
            f"the unfinished run in {folder.parent} counts something else ({'; '.join(changes)}). Undo the change to "
            "resume it, or start over with restart=True or in another out_dir"
        )
    return True


def has_segments(folder: Path) -> bool:
    """Return whether a folder, or a subfolder for the segments of units, has segments of an unfinished run."""
    return any((path / MANIFEST_FILE).exists() for path in (folder, *_subfolders(folder)))


def remove_segments(folder: Path) -> None:
    """Remove a folder of segments and its subfolders, if it exists, durably.

    The manifest goes first: without it the other files are leftovers.
    """
    if folder.is_dir():
        for subfolder in _subfolders(folder):
            remove_segments(subfolder)
        (folder / MANIFEST_FILE).unlink(missing_ok=True)
        sync_folder(folder)
        remove_unknown(folder, frozenset())
        with suppress(OSError):  # it also has files of someone else
            folder.rmdir()
        sync_folder(folder.parent)


def _subfolders(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*") if path.is_dir() and _SUBFOLDER.fullmatch(path.name)]


def remove_unknown(folder: Path, known: Collection[str]) -> bool:
    """Remove the files with names of ours that are not in `known`. Returns whether there were any."""
    unknown = [path for path in folder.iterdir() if path.name not in known and _OWN_NAMES.fullmatch(path.name)]
    for path in unknown:
        path.unlink()
    return bool(unknown)
