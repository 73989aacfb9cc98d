"""Encoding the distinct pre-tokens of a corpus, which are split and normalized already."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from bpeflow.counting.counts import PretokenCounts
from bpeflow.tokenizer.encoder import Encoder

#: Pre-tokens that are encoded at once. More: more memory, about 1 KB each. Fewer: more calls.
_BATCH = 100_000


def encoded_batches(
    encoder: Encoder, counts: PretokenCounts
) -> Iterator[tuple[int, NDArray[np.unsignedinteger], NDArray[np.int64]]]:
    """Encode pre-tokens in batches. Yield the number of each batch's first, the ids, and where each pre-token ends."""
    words = iter(counts)
    for start in range(0, len(counts), _BATCH):
        yield start, *encoder.encode_pretokens([*islice(words, _BATCH)], np.dtype(np.uint32))
