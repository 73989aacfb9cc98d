"""`Units`: pre-tokens as the ids of a tokenizer, for counting what superwords are learned from.

A chunk of the second pattern is about as long as a sentence, and most chunks occur once, so their counts take nearly
as much memory as the corpus. But most pairs of their *units*, the ids that the first stage gives them, are too rare to
be merged. The counters therefore cut pre-tokens between the units of such pairs. What is left are *fragments*, shorter
and with higher counts, of which those of one unit have no pair and are dropped.

Which pairs are frequent is decided by *cell*. All pairs with the same 22 bits of a hash are one cell, and counted
together: the counts take the same memory for any corpus, and a pair is at most as frequent as its cell. Source, with
the proof that learning then yields the same merges: ``ext/count/units.hpp``.
"""

from __future__ import annotations

from ctypes import byref
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt

from bpeflow._util.native import Handle, load_library
from bpeflow.counting.counts import PretokenCounts
from bpeflow.formats.tokenizer_spec import TokenizerSpec, tokenizer_hash


@dataclass(frozen=True, eq=False)
class Units:
    """What native tables count instead of pre-tokens: cells of pairs of units, or fragments. Picklable.

    Attributes:
        base: the tokenizer whose ids are the units. It encodes whole pre-tokens: its pattern is not used.
        frequent: ``uint32[n]``, the cells at whose pairs pre-tokens are not cut; None to count all cells.
    """

    base: TokenizerSpec
    frequent: npt.NDArray[np.uint32] | None = None

    @cached_property
    def digest(self) -> str:
        """A hash of everything that the counts depend on, in hexadecimal digits."""
        cells = b"" if self.frequent is None else self.frequent.astype("<u4").tobytes()
        return sha256(tokenizer_hash(self.base).encode() + cells).hexdigest()

    @cached_property
    def handle(self) -> Handle:
        """The native units, which tables of all threads share."""
        vocabulary, cells = self.base.native(len(self.base.vocab.merges)), self.frequent
        arguments = (None, 0) if cells is None else (cells.ctypes.data, len(cells))
        return Handle(load_library("count"), "units", byref(vocabulary), *arguments)

    def __getstate__(self) -> dict[str, Any]:
        return {"base": self.base, "frequent": self.frequent}


def frequent_cells(cells: PretokenCounts, most: int, min_count: int) -> tuple[npt.NDArray[np.uint32], int]:
    """Return the most frequent cells among all that were counted, and the lowest count among them.

    They are the cells that occur as often as cell number `most`, and at least `min_count` times. If these are all,
    so that none is cut, the lowest count is `min_count`: there are no other pairs to be merged.
    """
    lowest = max(int(cells.counts[most - 1]) if most < len(cells) else 0, min_count)
    number = int(np.searchsorted(-cells.counts, -lowest, side="right"))
    return cells.data.view(">u4")[:number].astype(np.uint32), lowest
