"""Random vocabularies, and the definition of merging."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st

from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.vocab import Merge, Vocab


@st.composite
def vocabularies(draw: st.DrawFn) -> Vocab:
    """Few letters and many merges of them, in any order. So some can never apply, and some make the same string."""
    tokens = [bytes([byte]) for byte in range(256)]
    known = [b"a", b"b", b"c", b" ", "é".encode()[:1], "é".encode()[1:], b"<", b">"]
    merges: list[Merge] = []
    for _ in range(draw(st.integers(0, 14))):
        left, right = draw(st.sampled_from(known)), draw(st.sampled_from(known))
        merges.append((left, right))
        if left + right not in tokens:
            known.append(left + right)
            tokens.append(left + right)
    if draw(st.booleans()):
        tokens += [bytes([byte]) * 9 for byte in b"abc"]  # tokens that no merge makes
    merges = draw(st.permutations(merges))
    specials = {}
    for special in draw(st.sets(st.sampled_from(["<a>", "<a><a>", "<a", "é", "aa", "b"]))):
        specials[special] = len(tokens)
        tokens.append(special.encode())
    if draw(st.booleans()):
        tokens += [b""] * (1 << 16)  # small vocabularies hardly ever have ids that need 32 bits
        tokens.append(b"abc" * 5)
    return Vocab(tuple(tokens), specials, tuple(merges))


def merge_as_defined(word: bytes, spec: TokenizerSpec) -> list[int]:
    """Merge by the definition: the lowest rank first, leftmost first."""
    vocab = spec.vocab
    if spec.whole_tokens and word in vocab.ordinary_tokens:
        return [vocab.ordinary_tokens.index(word)]
    ranks: dict[tuple[int, int], tuple[int, int]] = {}
    for rank, (left, right, result) in enumerate(vocab.merge_ids.tolist()):
        ranks.setdefault((left, right), (rank, result))
    ids = [vocab.byte_ids[byte] for byte in word]
    while found := [(*ranks[pair], i) for i, pair in enumerate(pairwise(ids)) if pair in ranks]:
        _, result, position = min(found, key=lambda entry: (entry[0], entry[2]))
        ids[position : position + 2] = [result]
    return ids


@st.composite
def trained_vocabularies(draw: st.DrawFn) -> Vocab:
    """Merges of few letters in the order of training, which makes no token twice: a merge comes after its parts'."""
    known = [b"a", b"b", b"c"]
    merges: list[Merge] = []
    for left, right in draw(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=20)):
        merge = known[left % len(known)], known[right % len(known)]
        if b"".join(merge) not in known:
            merges.append(merge)
            known.append(b"".join(merge))
    return Vocab.build(merges)
