"""A vocabulary in few bytes, for the page's script to search.

Tokens are sent as the merges that make them: two ids each, instead of their bytes. The result is compressed, and the
browser decompresses it.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import numpy as np

from bpeflow.vocab import Vocab


def packed_vocab(vocab: Vocab, merge_counts: Sequence[int | None]) -> str:
    """Return a vocabulary as base64 of compressed JSON, which `page.js` reads.

    The JSON has `size`, the number of ids; `tokens`, by id, the bytes of tokens that no merge makes, in hexadecimal;
    `special`, by id, the special tokens; and the columns `left`, `right`, `token` and `count` of the merges, where
    `token` and `count` are differences from one merge to the next. A count that is unknown is -1.
    """
    counts = [-1 if count is None else count for count in merge_counts or [None] * vocab.merge_count]
    merges = vocab.merge_ids.astype(np.int64)
    made = set(merges[:, 2].tolist())
    specials = {i: token for token, i in vocab.special_tokens.items()}
    values: dict[str, Any] = {
        "size": len(vocab),
        "tokens": {i: token.hex() for i, token in enumerate(vocab.tokens) if i not in made and i not in specials},
        "special": specials,
        "left": merges[:, 0].tolist(),
        "right": merges[:, 1].tolist(),
        "token": np.diff(merges[:, 2], prepend=0).tolist(),
        "count": np.diff(np.array(counts, np.int64), prepend=0).tolist(),
    }
    text = json.dumps(values, separators=(",", ":"), ensure_ascii=False)
    return b64encode(zlib.compress(text.encode("utf-8", "surrogatepass"), 9)).decode()
