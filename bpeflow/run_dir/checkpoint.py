"""`MergeCheckpoint`: the merges learned so far, saved to a file from which an interrupted run resumes.

They are replayed as initial merges, which gives the same result on the same counts as learning without interruption.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any

from bpeflow._util.atomic import read_json, write_json
from bpeflow.config import Settings
from bpeflow.counting.counts import PretokenCounts
from bpeflow.counting.fingerprint import setting_changes
from bpeflow.errors import ResumeError
from bpeflow.formats.tokenizer_spec import TokenizerSpec, tokenizer_hash
from bpeflow.run_dir.layout import CHECKPOINT_FILE
from bpeflow.vocab import Merge

#: Seconds between two checkpoints. Longer loses more work with an interrupted run; shorter spends more time writing,
#: a few hundredths of a second each.
INTERVAL = 30.0
VERSION = 1

#: Settings that decide which merges are learned, besides the vocabulary sizes.
_DECIDING = ("special_tokens", "tie_break", "min_frequency", "max_token_length", "thin_rare", "special_tokens_first")
log = logging.getLogger(__name__)


def learning_fingerprint(settings: Settings, base: TokenizerSpec | None) -> dict[str, Any]:
    """Return what decides which merges are learned from given counts, as JSON values.

    Args:
        settings: the settings.
        base: the tokenizer to extend, whose content matters and not its place.
    """
    init_from = base and f"a tokenizer with {len(base.vocab):,} entries, SHA-256 {tokenizer_hash(base)}"
    decided = settings.model_dump(mode="json", include=set(_DECIDING))
    return {"sizes": list(settings.sizes), **decided, "init_from": init_from}


class MergeCheckpoint:
    """The checkpoint file of an unfinished run."""

    def __init__(self, folder: Path, counts: PretokenCounts, fingerprint: dict[str, Any]) -> None:
        self._path = folder / CHECKPOINT_FILE
        self._counts = counts
        self._settings = fingerprint
        self._counts_digest = ""
        self._next = monotonic() + INTERVAL

    @property
    def due(self) -> bool:
        """Whether it is time for the next checkpoint."""
        return monotonic() >= self._next

    def save(self, merges: Sequence[Merge]) -> None:
        """Write the merges learned so far, initial merges included. A failure to write is only logged."""
        body = {
            "version": VERSION,
            "settings": self._settings,
            "counts_sha256": self._digest_of_counts(),
            "merges": [[left.hex(), right.hex()] for left, right in merges],
        }
        try:
            write_json(self._path, body, indent=None)
        except OSError as error:  # the run needs no disk space yet, and there may be some when it does
            log.warning(
                "%s cannot be written (%s): if the run is interrupted, learning will start over", self._path, error
            )
        self._next = monotonic() + INTERVAL

    def load(self, initial_merges: Sequence[Merge]) -> tuple[Merge, ...]:
        """Return the merges of the checkpoint, which begin with `initial_merges`; none without a checkpoint.

        A damaged file is ignored with a warning, as learning again costs only time.

        Raises:
            ResumeError: the merges were learned from other counts, with other settings, or from other initial merges.
        """
        try:
            body = read_json(self._path)
            if body["version"] != VERSION:
                raise ValueError
            merges = tuple((bytes.fromhex(left), bytes.fromhex(right)) for left, right in body["merges"])
        except FileNotFoundError:
            return ()
        except (ValueError, KeyError, TypeError):
            log.warning("%s is damaged: learning starts over", self._path)
            return ()
        check_same_settings(body["settings"], self._settings, self._path)
        if body["counts_sha256"] != self._digest_of_counts():
            raise ResumeError(f"{self._path} was learned from other counts: start over with --restart")
        if merges[: len(initial_merges)] != tuple(initial_merges):
            raise ResumeError(
                f"{self._path} began with other merges than those of init_from: start over with --restart"
            )
        return merges

    def _digest_of_counts(self) -> str:
        if not self._counts_digest:
            digest = sha256()
            for array in (self._counts.data, self._counts.offsets, self._counts.counts):
                digest.update(array.data)
            self._counts_digest = digest.hexdigest()
        return self._counts_digest


def check_same_settings(
    before: Mapping[str, Any], now: Mapping[str, Any], where: Path, start_over: str = "--restart"
) -> None:
    """Raise `ResumeError` if merges were learned with other settings than they are now."""
    if changes := setting_changes(before, now):
        raise ResumeError(
            f"{where} is of a run with other settings: {'; '.join(changes)}. Undo the change to resume it, learn again "
            f"from its counts (bpeflow merge), or start over with {start_over} or in another out_dir"
        )
