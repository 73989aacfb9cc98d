"""`MergeCheckpoint`: merges that a run has learned so far, in a file, for the case that it does not come to its end.

To go on from them they are replayed as initial merges, which on the same counts gives what learning at once gives.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any

from bpeflow._util.atomic import atomic_path
from bpeflow._util.checksummed import checksummed, verified
from bpeflow.config import Settings
from bpeflow.counting.counts import PretokenCounts
from bpeflow.counting.fingerprint import differing
from bpeflow.errors import ResumeError
from bpeflow.run_dir.layout import CHECKPOINT_FILE
from bpeflow.vocab import Merge

#: Seconds between two writings: so much is lost with a run at most. It takes some hundredths of a second.
INTERVAL = 30.0
VERSION = 1

#: Settings that decide what is learned; the vocabulary's sizes besides.
_DECIDING = ("special_tokens", "tie_break", "min_frequency", "max_token_length", "init_from", "special_tokens_first")
log = logging.getLogger(__name__)


def learning_fingerprint(settings: Settings) -> dict[str, Any]:
    """The settings that decide what is learned from given counts, as JSON has them."""
    return {"sizes": list(settings.sizes), **settings.model_dump(mode="json", include=set(_DECIDING))}


class MergeCheckpoint:
    """The file of partial merges, in the folder of a run that is not finished."""

    def __init__(self, folder: Path, counts: PretokenCounts, settings: Settings) -> None:
        self._path = folder / CHECKPOINT_FILE
        self._counts = counts
        self._settings = learning_fingerprint(settings)
        self._counts_digest = ""
        self._next = monotonic() + INTERVAL

    @property
    def due(self) -> bool:
        """Whether it is time to save again."""
        return monotonic() >= self._next

    def save(self, merges: Sequence[Merge]) -> None:
        """Write what has been learned so far, initial merges included."""
        body = {
            "version": VERSION,
            "settings": self._settings,
            "counts_sha256": self._digest_of_counts(),
            "merges": [[left.hex(), right.hex()] for left, right in merges],
        }
        try:
            with atomic_path(self._path) as temporary:
                temporary.write_text(json.dumps(checksummed(body)), encoding="utf-8")
        except OSError as error:  # the run itself needs no room yet, and may find some in its end
            log.warning(
                "%s cannot be written (%s): should the run be killed, it begins to merge anew", self._path, error
            )
        self._next = monotonic() + INTERVAL

    def load(self, initial_merges: Sequence[Merge]) -> tuple[Merge, ...]:
        """Read what was learned, after these initial merges; nothing where there is no file.

        A damaged file is passed over, with a warning: to learn again takes time and no more. Raises `ResumeError` for
        merges of other counts or settings.
        """
        try:
            body = verified(json.loads(self._path.read_text(encoding="utf-8")))
            if body["version"] != VERSION:
                raise ValueError
            merges = tuple((bytes.fromhex(left), bytes.fromhex(right)) for left, right in body["merges"])
        except FileNotFoundError:
            return ()
        except (ValueError, KeyError, TypeError, AttributeError):
            log.warning("%s is damaged: merges are learned from the first one on", self._path)
            return ()
        check_same_settings(body["settings"], self._settings, self._path)
        if body["counts_sha256"] != self._digest_of_counts():
            raise ResumeError(f"{self._path} was learned from other counts: begin again with --restart")
        if merges[: len(initial_merges)] != tuple(initial_merges):
            raise ResumeError(
                f"{self._path} began with other merges than init_from has now: begin again with --restart"
            )
        return merges

    def _digest_of_counts(self) -> str:
        if not self._counts_digest:
            digest = sha256()
            for array in (self._counts.data, self._counts.offsets, self._counts.counts):
                digest.update(array.data)
            self._counts_digest = digest.hexdigest()
        return self._counts_digest


def check_same_settings(before: Mapping[str, Any], now: Mapping[str, Any], where: Path) -> None:
    """Raise `ResumeError` if merges were, or are being, learned with other settings."""
    if changes := differing(before, now):
        raise ResumeError(
            f"{where} is of a run with other settings: {'; '.join(changes)}. Put that back to go on with it; to learn "
            "again from its counts: python -m bpeflow merge; to begin again: --restart, or another out_dir"
        )
