"""How often words occur: a weight for each rank, and drawing by weight."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]

#: Ranks below this have their own weight and a stored spelling. Higher ranks are drawn in groups and spelt on the fly.
HEAD = 1 << 17
#: There are 2 ** 32 words, enough that even terabytes of text do not exhaust any part of the tail.
RANK_BITS = 32
#: Groups per doubling of the rank in the tail. More follow the curve more closely, fewer keep the table smaller.
GROUPS = 32
#: The curve: weight(r) = 1 / (r + SHIFT) / (1 + r / KNEE) ** (7 / 8). The exponent is 1, and 15 / 8 well past the knee.
SHIFT = 1.5
KNEE = 18000.0


def tail_ranks(group: I64, bits: U64) -> U64:
    """Draw a rank from each of these groups, uniformly, with the upper half of a random word."""
    firsts, sizes = GROUP_RANKS
    ranks: U64 = firsts[group].astype(np.uint64) + ((bits >> np.uint64(32)) & (sizes[group] - 1).astype(np.uint64))
    return ranks


def _weight(rank: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    bend = 1 + rank / KNEE
    eighth_root = np.sqrt(np.sqrt(np.sqrt(bend)))
    weight: npt.NDArray[np.float64] = eighth_root / bend / (rank + SHIFT)  # bend ** (-7 / 8), see SHIFT and KNEE
    return weight


def _groups() -> tuple[I64, I64]:
    """Return the first ranks and the sizes of the tail's groups. Sizes are powers of two."""
    starts = HEAD << np.arange(RANK_BITS - HEAD.bit_length() + 1)
    sizes = np.repeat(starts // GROUPS, GROUPS)
    return np.repeat(starts, GROUPS) + sizes * np.tile(np.arange(GROUPS), len(starts)), sizes


GROUP_RANKS = _groups()


def rank_weights() -> npt.NDArray[np.float64]:
    """Return the relative frequency of each rank of the head, then of each group of the tail."""
    firsts, sizes = GROUP_RANKS
    centres = (firsts + (sizes - 1) / 2).astype(np.float64)
    return np.concatenate([_weight(np.arange(HEAD, dtype=np.float64)), _weight(centres) * sizes])


class AliasTable:
    """Draws indices by weight in constant time (A. J. Walker 1977; M. D. Vose 1991), with exact integers."""

    def __init__(self, weights: npt.NDArray[np.float64]) -> None:
        parts = [int(weight * 2**40) for weight in weights.tolist()]
        total, self._count = sum(parts), len(parts)
        left = [part * len(parts) for part in parts]  # distributed over slots that hold `total` each
        small = [index for index, part in enumerate(left) if part < total]
        large = [index for index, part in enumerate(left) if part >= total]
        keep, alias = [2**32] * len(parts), list(range(len(parts)))
        while small and large:
            index, donor = small.pop(), large[-1]
            keep[index], alias[index] = (left[index] << 32) // total, donor
            left[donor] -= total - left[index]
            if left[donor] < total:
                small.append(large.pop())
        keep = [min(share, 2**32 - 1) for share in keep]  # a full slot is its own alias
        self._slots = np.array(keep, dtype=np.uint64) << np.uint64(32) | np.array(alias, dtype=np.uint64)

    def __call__(self, bits: U64) -> I64:
        """Return an index per random word: the upper half selects the slot, the lower half the slot or its alias."""
        low = np.uint64(0xFFFFFFFF)
        slot = (bits >> np.uint64(32)) * np.uint64(self._count) >> np.uint64(32)
        entry = self._slots[slot.astype(np.int64)]
        drawn: U64 = np.where((bits & low) < entry >> np.uint64(32), slot, entry & low)
        return drawn.astype(np.int64)
