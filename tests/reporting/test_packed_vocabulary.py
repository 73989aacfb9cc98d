"""What is sent to the page's script."""

from __future__ import annotations

import json
import zlib
from base64 import b64decode

import bpeflow
from bpeflow.reporting.vocabulary import packed_vocab


def unpacked(packed: str) -> dict[int, tuple[bytes, int | None]]:
    """Return the tokens of each id and the count of its merge, as `page.js` makes them."""
    values = json.loads(zlib.decompress(b64decode(packed)))
    tokens = {int(i): (bytes.fromhex(token), None) for i, token in values["tokens"].items()}
    tokens |= {int(i): (token.encode(), None) for i, token in values["special"].items()}
    token = count = 0
    for left, right, more, change in zip(*(values[name] for name in ("left", "right", "token", "count")), strict=True):
        token, count = token + more, count + change
        tokens.setdefault(token, (tokens[left][0] + tokens[right][0], None if count < 0 else count))
    assert sorted(tokens) == list(range(values["size"]))
    return tokens


def test_all_tokens_and_counts_arrive() -> None:
    learned = bpeflow.learn_merges({"low": 5, "lower": 2, "東京": 3}, 262, ["<s>"])
    vocab = learned.vocab()
    tokens = unpacked(packed_vocab(vocab, learned.counts))
    assert [token for _, (token, _) in sorted(tokens.items())] == [*vocab.tokens]
    assert [tokens[i][1] for i in vocab.merge_ids[:, 2].tolist()] == [*learned.counts]


def test_unknown_counts_and_large_vocabularies() -> None:
    merges = [(bytes([left]), bytes([right])) for left in range(97, 123) for right in range(97, 123)]
    merges += [(left + right, b"x") for left, right in merges]
    vocab = bpeflow.Vocab.build(merges, ["<s>"])
    packed = packed_vocab(vocab, [None] * 700 + [9] * 652)
    tokens = unpacked(packed)
    assert [tokens[257 + index][1] for index in (0, 699, 700, 1351)] == [None, None, 9, 9]
    assert len(packed) < 6 * len(vocab)
    assert unpacked(packed_vocab(vocab, ())) == {i: (token, None) for i, (token, _) in tokens.items()}
