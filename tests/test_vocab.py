"""`Vocab` and GPT-2's printable form of bytes."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpeflow._util.byte_level import (
    BYTE_CHARACTERS,
    BYTES_BY_CHARACTER,
    from_printable,
    mergeable_bytes,
    to_printable,
)
from bpeflow._util.packed import PackedBytes
from bpeflow.errors import FormatError
from bpeflow.vocab import Vocab

MERGES = [(b"a", b"b"), (b"ab", b"c"), (b" ", b"ab")]


def test_ids_are_assigned_to_bytes_then_special_tokens_then_merges() -> None:
    vocab = Vocab.build(MERGES, ["<s>", "</s>"])
    assert vocab.tokens[:256] == tuple(bytes([b]) for b in range(256))
    assert vocab.tokens[256:] == (b"<s>", b"</s>", b"ab", b"abc", b" ab")
    assert vocab.special_tokens == {"<s>": 256, "</s>": 257}
    assert vocab.merges == tuple(MERGES)
    assert vocab.to_dict()[258] == b"ab"
    assert vocab.longest_token == b"abc"
    assert vocab.byte_ids == tuple(range(256))


def test_an_extended_vocabulary_keeps_all_ids_and_gaps() -> None:
    tokens = (*(bytes([b]) for b in reversed(range(256))), b"", b"<s>", b"ab", b"", b"bcd")
    old = Vocab(tokens, {"<s>": 257}, ((b"a", b"b"),), "cl100k", "isolate")
    new = old.extend([(b"ab", b"c"), (b"b", b"c"), (b"bc", b"d")], ["<pad>", "<s>"])
    assert new.tokens == (*tokens, b"<pad>", b"abc", b"bc")  # b"bcd" has an id
    assert new.special_tokens == {"<s>": 257, "<pad>": 261}
    assert new.merges == ((b"a", b"b"), (b"ab", b"c"), (b"b", b"c"), (b"bc", b"d"))
    assert new.merge_ids[-1].tolist() == [263, 155, 260]
    assert (new.pattern, len(old)) == ("cl100k", 261)
    assert old.extend([(b"ab", b"c"), (b"b", b"c")], ["<pad>"], max_tokens=263).tokens == new.tokens[:263]


@pytest.mark.parametrize("reuse_tokens", [True, False])
def test_special_tokens_share_ids_in_an_extended_vocabulary_in_huggingfaces_mode(reuse_tokens: bool) -> None:
    old = Vocab.build([(b" ", b"a")], ["ab"])
    new = old.extend([(b"a", b"b")], ["Ġa", "b c"], reuse_tokens=reuse_tokens)
    shared = {"ab": 256, "Ġa": 257, "b c": 258}
    assert new.special_tokens == (shared if reuse_tokens else {"ab": 256, "Ġa": 258, "b c": 259})
    assert len(new) == (259 if reuse_tokens else 261)
    assert new.token_ids[b"ab"] == (256 if reuse_tokens else 260)


def test_a_vocabulary_is_a_mapping_from_every_id_to_its_bytes() -> None:
    vocab = Vocab.build(MERGES, ["<s>"])
    assert isinstance(vocab, Mapping)
    assert dict(vocab) == dict(vocab.items()) == vocab.to_dict()
    assert list(vocab) == list(range(len(vocab))) == list(range(260))
    assert (vocab[257], vocab[np.uint16(259)], vocab.get(260)) == (b"ab", b" ab", None)
    assert 259 in vocab
    assert b"ab" in vocab.values()
    for wrong in (260, -1, b"ab", "ab", None):
        assert wrong not in vocab
        with pytest.raises(KeyError):
            vocab[wrong]  # type: ignore[index]


def test_an_unused_id_is_a_key_without_bytes() -> None:
    vocab = Vocab((*(bytes([byte]) for byte in range(256)), b"", b"ab"), {}, ((b"a", b"b"),))
    assert (len(vocab), 256 in vocab, vocab[256]) == (258, True, b"")
    assert vocab.token_ids.get(b"") is None


def test_vocabularies_are_equal_with_the_same_special_tokens_and_merges_and_to_a_mapping_of_the_same_items() -> None:
    vocab = Vocab.build(MERGES, ["<s>"])
    assert vocab == Vocab.build(MERGES, ["<s>"])
    assert vocab != vocab.replaced(special_tokens={})
    assert vocab != vocab.replaced(merges=())
    assert vocab == vocab.to_dict()
    assert vocab.to_dict() == vocab
    assert vocab != vocab.to_dict() | {3: b"other"}
    assert vocab != list(vocab)
    with pytest.raises(TypeError, match="unhashable"):
        hash(vocab)


def test_bytes_have_the_id_that_encoding_yields() -> None:
    merges = [(b"a", b"b"), (b"t", b"h"), (b" ", b"th")]
    vocab = Vocab.build(merges, ["ab", "Ġth"])
    assert {token: vocab.token_ids.get(token) for token in (b"ab", b" th", "Ġth".encode(), b"a", b"x y")} == {
        b"ab": 258, b" th": 260, "Ġth".encode(): 257, b"a": 97, b"x y": None,
    }  # fmt: skip
    shared = Vocab.build(merges, ["ab", "Ġth"], reuse_tokens=True)
    assert (shared.token_ids[b"ab"], shared.token_ids[b" th"], shared.token_ids["Ġth".encode()]) == (256, 257, 257)
    assert Vocab.build([], ["Ġth"]).token_ids.get(b" th") is None


def test_special_tokens_first_is_huggingfaces_order() -> None:
    vocab = Vocab.build(MERGES, ["<s>"], special_tokens_first=True)
    assert vocab.tokens[0] == b"<s>"
    assert vocab.tokens[1:257] == tuple(bytes([b]) for b in BYTES_BY_CHARACTER)
    assert vocab.tokens[1] == b"!"  # the first printable byte
    assert vocab.tokens[257:] == (b"ab", b"abc", b" ab")
    assert vocab.tokens[vocab.byte_ids[0x20]] == b" "


def test_a_smaller_vocabulary_is_a_prefix_of_a_larger_one() -> None:
    assert Vocab.build(MERGES, ["<s>"], max_tokens=258).tokens == Vocab.build(MERGES, ["<s>"]).tokens[:258]
    assert Vocab.build(MERGES, ["<s>"], max_tokens=258).merges == tuple(MERGES[:1])
    assert Vocab.build(MERGES, max_tokens=255).merges == ()


def test_every_merge_makes_a_new_token_unless_tokens_are_reused() -> None:
    merges = [(b"a", b"b"), (b"ab", b"c"), (b"b", b"c"), (b"a", b"bc")]
    separate = Vocab.build(merges, ["ab"])
    assert separate.tokens[256:] == (b"ab", b"ab", b"abc", b"bc", b"abc")
    reused = Vocab.build(merges, ["ab"], reuse_tokens=True)
    assert reused.tokens[256:] == (b"ab", b"abc", b"bc")
    assert reused.merges == tuple(merges)


def test_a_special_token_of_one_byte_gets_the_id_of_the_byte_only_if_tokens_are_reused() -> None:
    assert Vocab.build([], ["a"], special_tokens_first=True).byte_ids[ord("a")] != 0
    assert Vocab.build([], ["a"], special_tokens_first=True, reuse_tokens=True).byte_ids[ord("a")] == 0


@pytest.mark.parametrize("special", ["a", "Ġ", "é"])
def test_a_byte_that_shares_its_id_with_a_special_token_has_that_id(special: str) -> None:
    vocab = Vocab.build([], ["<s>", special], special_tokens_first=True, reuse_tokens=True)
    assert vocab.byte_ids[mergeable_bytes(special)[0]] == 1
    assert sorted(vocab.byte_ids) == list(range(1, 257))


def test_repr_is_short_for_any_size() -> None:
    merges = [(b"a" * n, b"a") for n in range(1, 2001)]
    assert repr(Vocab.build(merges, ["<s>"])) == "Vocab(2,257 tokens, 2,000 merges, special tokens: <s>)"
    assert repr(Vocab.build([])) == "Vocab(256 tokens, 0 merges, special tokens: none)"
    many = [f"<{n}>" for n in range(1005)]
    assert repr(Vocab.build([], many)).endswith("special tokens: <0>, <1>, <2>, <3>, <4>, 1,000 more)")


@pytest.mark.parametrize(("special", "merged"), [("the", b"the"), ("Ġthe", b" the"), ("a b", b""), ("日", b"")])
def test_mergeable_bytes_are_the_inverse_of_printable_form_or_empty(special: str, merged: bytes) -> None:
    assert mergeable_bytes(special) == merged


def test_printable_form_is_that_of_gpt2() -> None:
    assert to_printable(b" the\n") == "ĠtheĊ"
    assert to_printable("é".encode()) == "Ã©"
    assert len(set(BYTE_CHARACTERS)) == 256
    assert from_printable("a b") is None


@given(st.binary())
def test_printable_form_round_trips_any_bytes(token: bytes) -> None:
    assert from_printable(to_printable(token)) == token


def test_merges_given_as_ids_are_made_when_they_are_needed() -> None:
    built = Vocab.build(MERGES, ["<s>"])
    vocab = Vocab.from_merge_ids(PackedBytes.of(built.tokens), built.special_tokens, built.merge_ids.copy())
    assert vocab.ordinary_tokens == built.ordinary_tokens
    assert vocab.merge_count == 3
    assert "merges" not in vars(vocab)
    assert vocab == built
    assert vocab.merges == built.merges
    with pytest.raises(AttributeError, match="'Vocab' object has no attribute 'merge'"):
        _ = vocab.merge  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="read-only"):
        vocab.merge_ids[0] = 0


@given(
    tokens=st.permutations([b"ab", b"abb", b"", b" a"]),
    special_tokens=st.sets(st.sampled_from(["<s>", "ab", "Ġa", "a", "Ġ", "日", "<|日|>"]), max_size=3),
    missing=st.sampled_from([b"", b"\xff", b"\xc0\xff"]),
    first=st.booleans(),
)
def test_a_vocabulary_of_packed_tokens_is_the_same(
    tokens: list[bytes], special_tokens: set[str], missing: bytes, first: bool
) -> None:
    specials = sorted(special_tokens)
    bytes_ = [bytes([byte]) for byte in range(256) if byte not in missing]
    ordinary = [*tokens, *bytes_]
    texts = [text.encode() for text in specials]
    all_tokens = [*texts, *ordinary] if first else [*ordinary, *texts]
    ids = {text: i + (0 if first else len(ordinary)) for i, text in enumerate(specials)}
    plain = Vocab(tuple(all_tokens), ids, ((b"a", b"b"), (b" ", b"a"), (b"ab", b"b")))
    packed = Vocab.from_merge_ids(PackedBytes.of(all_tokens), ids, plain.merge_ids.copy())
    for vocab in (packed, packed.annotated(pattern="gpt2"), pickle.loads(pickle.dumps(packed))):
        assert len(vocab) == len(plain)
        assert vocab.byte_ids == plain.byte_ids
        assert vocab.ordinary_tokens == plain.ordinary_tokens
        assert vocab.decoded_tokens == plain.decoded_tokens
        assert vocab.token_ids == plain.token_ids
        assert vocab == plain
        assert vocab[3] == all_tokens[3]


@given(
    merges=st.lists(
        st.sampled_from([*MERGES, (b"a", b"bc"), (b"b", b"c"), (b" ", b"a"), (b" a", b"b"), (b"<", b"s>")])
    ),
    special_tokens=st.sets(st.sampled_from(["<s>", "s>", "ab", "Ġab", "a", "Ġ", "日", "<|日|>"]), max_size=3),
    reuse=st.booleans(),
    first=st.booleans(),
)
def test_a_vocabulary_that_was_built_is_the_one_with_its_tokens_and_merges(
    merges: list[tuple[bytes, bytes]], special_tokens: set[str], reuse: bool, first: bool
) -> None:
    try:
        built = Vocab.build(merges, special_tokens, special_tokens_first=first, reuse_tokens=reuse)
    except FormatError:  # a part of a merge is not a token
        return
    plain = Vocab(built.tokens, built.special_tokens, built.merges)
    assert built.merge_ids.tolist() == plain.merge_ids.tolist()
    assert built.ordinary_tokens == plain.ordinary_tokens
    assert built.decoded_tokens == plain.decoded_tokens
    assert built.token_ids == plain.token_ids
    assert built.byte_ids == plain.byte_ids


def test_a_pickle_of_packed_tokens_stays_packed() -> None:
    built = Vocab.build(MERGES, ["<s>"])
    vocab = Vocab.from_merge_ids(PackedBytes.of(built.tokens), built.special_tokens, built.merge_ids.copy())
    copy = pickle.loads(pickle.dumps(vocab))
    assert not vars(copy).keys() & {"tokens", "merges"}
    assert copy == built
    assert not vars(pickle.loads(pickle.dumps(built))).keys() & {"tokens"}  # they are packed however they were given


def test_the_ids_of_merges_that_make_a_special_token_follow_from_the_merges() -> None:
    built = Vocab.build(MERGES, ["Ġab"], reuse_tokens=True)
    vocab = Vocab.from_merge_ids(PackedBytes.of(built.tokens), built.special_tokens, built.merge_ids.copy())
    assert vars(vocab)["merges"] == built.merges
    assert vocab.merge_ids.tolist()[2] == [32, 257, 256]


def test_a_copy_with_another_pattern_shares_what_was_computed() -> None:
    vocab = Vocab.build(MERGES)
    merge_ids = vocab.merge_ids
    other = vocab.annotated(pattern="cl100k", unmatched="drop")
    assert (other.pattern, other.unmatched, vocab.pattern) == ("cl100k", "drop", None)
    assert other.merge_ids is merge_ids
    assert other == vocab


@pytest.mark.parametrize("special_tokens", [["<s>"], ["Ġab"], ["Ġa"]])
def test_a_pickle_has_the_merges_once(special_tokens: list[str]) -> None:
    vocab = Vocab.build([*MERGES, (b" ", b"a")], special_tokens, reuse_tokens=True)
    plain = pickle.loads(pickle.dumps(vocab))
    _ = vocab.token_ids
    copy = pickle.loads(pickle.dumps(vocab))
    assert vars(copy).keys() & {"merges", "merge_ids"} == {"merge_ids" if special_tokens == ["<s>"] else "merges"}
    for other in (plain, copy):
        assert other == vocab
        assert other.merge_ids.tolist() == vocab.merge_ids.tolist()
        assert other.decoded_tokens == vocab.decoded_tokens


@given(
    tokens=st.lists(st.sampled_from([b"", b"a", b"ab", b" ", b" a", "Ġa".encode(), b"<s>", b"b", b"abb"]), max_size=9),
    specials=st.dictionaries(st.sampled_from(["Ġa", "<s>", "a", "ab", "Ġ"]), st.integers(0, 8), max_size=3),
    ranks=st.lists(st.sampled_from([(b"a", b"b"), (b" ", b"a"), (b"ab", b"b"), (b"<", b"s>")]), max_size=3),
)
def test_tokens_that_text_yields_are_those_of_the_definition(
    tokens: list[bytes], specials: dict[str, int], ranks: list[tuple[bytes, bytes]]
) -> None:
    specials = {token: token_id for token, token_id in specials.items() if token_id < len(tokens)}
    vocab = Vocab(tuple(tokens), specials, tuple(ranks))
    try:
        _ = vocab.merge_ids
    except FormatError:
        return
    assert tuple(vocab.ordinary_tokens) == ordinary_tokens(vocab)
    assert [*vocab.decoded_tokens] == [a or b for a, b in zip(ordinary_tokens(vocab), tokens, strict=True)]


def ordinary_tokens(vocab: Vocab) -> tuple[bytes, ...]:
    texts = {token_id: text for text, token_id in vocab.special_tokens.items()}
    ids = {text.encode(): token_id for token_id, text in texts.items()}
    ids |= {mergeable_bytes(text): token_id for token_id, text in texts.items()}
    ids |= {token: i for i, token in reversed([*enumerate(vocab.tokens)]) if i not in texts}
    ids.pop(b"", None)
    reachable = [left + right for left, right in vocab.merges]
    reachable += [token for token, token_id in ids.items() if len(token) == 1 or token_id not in texts]
    ordinary = [b""] * len(vocab)
    for token in reachable:
        ordinary[ids[token]] = token
    return tuple(ordinary)
