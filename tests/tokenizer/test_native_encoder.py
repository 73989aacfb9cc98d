"""The native encoder equals the Python encoder and the definition of merging, with a cache of any size."""

from __future__ import annotations

import gc
import os
import random
import sys
import threading
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_vocabularies import merge_as_defined, vocabularies
from small import spec_of

from bpeflow._util.native import load_library
from bpeflow.errors import InvalidTextError, NativeUnavailableError, UnknownTokenError
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.pretokenize.native import native_instructions
from bpeflow.pretokenize.patterns import NAMED_PATTERNS
from bpeflow.tokenizer import native_encoder
from bpeflow.tokenizer.native_encoder import NativeEncoder
from bpeflow.tokenizer.python_encoder import PythonEncoder
from bpeflow.tokenizer.special_tokens import NO_SPECIAL_TOKENS, SpecialTokens
from bpeflow.vocab import Vocab

#: Cache sizes: no cache, a single slot, caches that are cleared again and again, and one that never is.
CACHES = (0, 128, 4096, 1 << 15, 1 << 24)
#: The available instruction sets. Looked up at collection, which must not fail if nothing native is built.
INSTRUCTIONS = ("scalar",)
with suppress(NativeUnavailableError):
    INSTRUCTIONS = native_instructions()

UINT16 = np.dtype(np.uint16)
UINT32 = np.dtype(np.uint32)

#: Text with the letters of the vocabularies below, repeated letters, and characters that the patterns distinguish.
LETTERS = ["a", "b", "c", "aa", "ab", "abc", "é", "aaaaaaaaaaaaaaaaaaaaaaaa", "abababababababababab"]
ATOMS = [*LETTERS, " ", "  ", "\n", "'s", "'", "1", "12345", ".", "<a>", "<a><a>", "<a", "日本", "\u0301", "\r\n"]
texts = st.lists(st.sampled_from(ATOMS), max_size=40).map("".join)
repetitions = st.builds(
    lambda unit, count: unit * count, st.sampled_from(["a", "ab", "aab", "é", "abc"]), st.integers(1, 200)
)


pytestmark = pytest.mark.usefixtures("native_library")


# ---- exact ----


@pytest.mark.slow
@settings(max_examples=75)
@given(vocab=vocabularies(), word=st.one_of(repetitions, texts.filter(bool)), whole_tokens=st.booleans())
def test_a_pretoken_is_merged_by_rank(vocab: Vocab, word: str, whole_tokens: bool) -> None:
    spec = TokenizerSpec(vocab, r"(?s).+", whole_tokens)
    assert NativeEncoder(spec).encode(word.encode(), NO_SPECIAL_TOKENS) == merge_as_defined(word.encode(), spec)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    vocab=vocabularies(),
    batch=st.lists(st.one_of(texts, repetitions, st.text()), max_size=5),
    pattern=st.sampled_from([*NAMED_PATTERNS, r"[a-z]+| ", r"(a)|\w+?|\s"]),
    whole_tokens=st.booleans(),
    cache_bytes=st.sampled_from(CACHES),
    with_specials=st.booleans(),
    instructions=st.sampled_from(INSTRUCTIONS),
)
def test_native_equals_python(
    vocab: Vocab,
    batch: list[str],
    pattern: str,
    whole_tokens: bool,
    cache_bytes: int,
    with_specials: bool,
    instructions: str,
) -> None:
    spec = TokenizerSpec(vocab, pattern, whole_tokens)
    specials = SpecialTokens.of(vocab.special_tokens) if with_specials else NO_SPECIAL_TOKENS
    ours, python = NativeEncoder(spec, cache_bytes, instructions=instructions), PythonEncoder(spec)
    encoded = [text.encode() for text in batch]
    dtypes = [UINT32] if len(vocab) > 1 << 16 else [UINT16, UINT32]
    for _ in range(2):  # the second time with a filled cache
        for text in encoded:
            expected = python.encode(text, specials)
            assert ours.encode(text, specials) == expected
            for dtype in dtypes:
                for given_text in (text, memoryview(text)):
                    array = ours.encode_to_array(given_text, specials, dtype)
                    assert (array.tolist(), array.dtype) == (expected, dtype)
        for dtype in dtypes:
            ids, ends = ours.encode_batch(batch, specials, dtype)
            expected_ids, expected_ends = python.encode_batch(batch, specials, dtype)
            assert (ids.tolist(), ids.dtype) == (expected_ids.tolist(), dtype)
            assert (ends.tolist(), ends.dtype) == (expected_ends.tolist(), np.int64)
    for text in encoded:
        ids = ours.encode_to_array(text, specials, UINT32)
        assert ours.decode(ids) == python.decode(ids)


@pytest.mark.slow
@pytest.mark.parametrize("cache_bytes", CACHES)
def test_a_cache_of_any_size_changes_nothing(cache_bytes: int) -> None:
    spec = spec_of([(b"a", b"b"), (b"ab", b"ab"), (b" ", b"a"), (b"c", b"c")])
    words = [f" a{'b' * (n % 7)}{'ab' * (n % 31)}{n * 7919 % 4001}" for n in range(3000)]
    text = "".join([*words, "c" * 5000, "c" * 700, *words, " " + "abc" * 300, *words[::-1]]).encode()
    expected = PythonEncoder(spec).encode(text, NO_SPECIAL_TOKENS)
    encoder = NativeEncoder(spec, cache_bytes)
    for dtype in (UINT16, UINT32, UINT16):
        assert encoder.encode_to_array(text, NO_SPECIAL_TOKENS, dtype).tolist() == expected


@pytest.mark.parametrize("instructions", INSTRUCTIONS)
def test_all_instruction_sets_work_in_one_process(instructions: str) -> None:
    spec = spec_of([(b"h", b"e"), (b"l", b"l")], "o200k")
    text = "hell HELLo's  hello\n\n123456 日本hello" * 50
    expected = PythonEncoder(spec).encode(text.encode(), NO_SPECIAL_TOKENS)
    assert NativeEncoder(spec, instructions=instructions).encode(text.encode(), NO_SPECIAL_TOKENS) == expected


def test_words_of_all_lengths_are_merged_with_all_instruction_sets() -> None:
    """Up to 16 bytes, all pairs are searched. Of more, eight at a time play for the next round, up to 8, 64, 512 …"""
    spec = spec_of(
        [(b"b", b"a"), (b"a", b"a"), (b"ba", b"b"), (b"aa", b"ba"), (b"b", b"b"), (b"bab", b"aa")], r"[ab]+| "
    )
    seed = random.randrange(2**32)
    print("seed", seed)  # noqa: T201
    choose = random.Random(seed)
    lengths = [*range(2, 36), *range(55, 74), *range(125, 132), *range(507, 521), 1000, *range(4090, 4099)]
    words = ["".join(choose.choices("ab", (1, weight), k=length)) for length in lengths for weight in (0.05, 0.5, 3)]
    words += ["b" * length + "a" for length in lengths]  # the only pair of the lowest rank is the last
    text = " ".join(words).encode()
    expected = PythonEncoder(spec).encode(text, NO_SPECIAL_TOKENS)
    for instructions in INSTRUCTIONS:
        assert NativeEncoder(spec, instructions=instructions).encode(text, NO_SPECIAL_TOKENS) == expected, instructions


def test_the_longest_of_several_special_tokens_wins() -> None:
    spec = spec_of([])
    specials = SpecialTokens.of({"<a>": 1000, "<a><a>": 70000})
    assert NativeEncoder(spec).encode(b"x<a><a><a>", specials) == [120, 70000, 1000]
    custom = NativeEncoder(TokenizerSpec(spec.vocab, r"[a-z]", unmatched="drop"))
    assert custom.encode(b"x<a><a><a>y", specials) == [120, 70000, 1000, 121]
    ids, ends = custom.encode_batch(["", "x<a>", "", "-"], specials, UINT32)
    assert (ids.tolist(), ends.tolist()) == ([120, 1000], [0, 2, 2, 2])


def test_a_repeated_merge_has_its_first_rank() -> None:
    spec = spec_of([(b"a", b"b"), (b"b", b"c")])
    twice = Vocab(spec.vocab.tokens, {}, ((b"a", b"b"), (b"b", b"c"), (b"a", b"b")))
    assert NativeEncoder(TokenizerSpec(twice)).encode(b"abc", NO_SPECIAL_TOKENS) == [256, 99]


def test_a_pretoken_becomes_a_token_only_by_merging_or_with_whole_tokens() -> None:
    vocab = Vocab((*spec_of([(b"a", b"b")]).vocab.tokens, b"abc"), {}, ((b"a", b"b"),))
    assert NativeEncoder(TokenizerSpec(vocab)).encode(b"abc", NO_SPECIAL_TOKENS) == [256, 99]
    assert NativeEncoder(TokenizerSpec(vocab, whole_tokens=True)).encode(b"abc", NO_SPECIAL_TOKENS) == [257]


@pytest.mark.parametrize("unit", ["a", "ab", "abcdefgh", "azbycxdw"])
def test_a_pretoken_of_a_megabyte_takes_no_quadratic_time(unit: str) -> None:
    merges = [
        (b"a", b"a"),
        (b"aa", b"aa"),
        (b"a", b"b"),
        (b"ab", b"ab"),
        (b"abab", b"abab"),
        (b"g", b"h"),
        (b"b", b"y"),
    ]
    text = (unit * (1_000_000 // len(unit))).encode()
    encoder = NativeEncoder(spec_of(merges))
    ids = encoder.encode_to_array(text, NO_SPECIAL_TOKENS, UINT16)  # quadratic time would be hours
    assert encoder.decode(ids) == text
    head = PythonEncoder(spec_of(merges)).encode(text[:2000], NO_SPECIAL_TOKENS)
    assert ids[: len(head) - 8].tolist() == head[:-8]


# ---- decoding ----


@pytest.mark.slow
@settings(max_examples=30)
@given(vocab=vocabularies(), data=st.data(), dtype=st.sampled_from([UINT16, UINT32]))
def test_ids_decode_to_their_tokens(vocab: Vocab, data: st.DataObject, dtype: np.dtype[Any]) -> None:
    known = [i for i, token in enumerate(vocab.tokens[: 1 << 16]) if token]
    ids = data.draw(st.lists(st.sampled_from(known), max_size=50))
    assert NativeEncoder(TokenizerSpec(vocab)).decode(np.array(ids, dtype)) == b"".join(vocab.tokens[i] for i in ids)


@pytest.mark.parametrize("count", [0, 1, 2, 100_000])
def test_decoded_text_is_a_separate_object(count: int) -> None:
    encoder = NativeEncoder(spec_of([]))
    ids = np.full(count, ord("x"), np.uint16)
    first, second = encoder.decode(ids), encoder.decode(ids)
    assert first == second == b"x" * count
    assert encoder.decode(np.full(count, ord("y"), np.uint16)) == b"y" * count
    assert (first, b"x"[:1], b"") == (b"x" * count, b"x", b"")


def test_few_ids_decode_to_their_tokens_at_any_time() -> None:
    """They are looked up one by one, after the first time in a dictionary; more are decoded in one native call."""
    spec = spec_of([(b"a", b"b"), (b"\xc3", b"\xa9")])
    encoder = NativeEncoder(spec)
    few = native_encoder._FEW_IDS
    for count in (1, few, few + 1, few, 1, 0):
        ids = [number % len(spec.vocab) for number in range(7, 7 * (count + 1), 7)]
        for dtype in (UINT16, UINT32):
            for _ in range(2):
                assert encoder.decode(np.array(ids, dtype)) == b"".join(spec.vocab.tokens[i] for i in ids)
        with pytest.raises(UnknownTokenError, match=f"unknown id 300 at index {count}"):
            encoder.decode(np.array([*ids, 300], UINT16))


# ---- sessions ----


def test_a_short_text_is_encoded_as_a_long_one() -> None:
    """Each side of the limit has buffers and functions of its own. Ids of an earlier text must not be seen again."""
    spec = spec_of([(b"a", b"b"), (b" ", b"ab"), (b"\xc3", b"\xa9")])
    encoder, python = NativeEncoder(spec), PythonEncoder(spec)
    specials = SpecialTokens.of({"<a>": 70000})
    limit = native_encoder.SHORT_TEXT
    for length in (limit - 1, limit, limit + 1, 20, 0, limit, 1):
        for unit in ("x", " ab", "é<a>ab"):
            text = (unit * limit).encode()[:length].decode(errors="ignore").encode()
            text += b"-" * (length - len(text))
            for chosen in (specials, NO_SPECIAL_TOKENS):
                expected = python.encode(text, chosen)
                assert encoder.encode(text, chosen) == expected
                assert encoder.encode_to_array(text, chosen, UINT32).tolist() == expected
    with pytest.raises(InvalidTextError, match="at byte 2"):
        encoder.encode(b"ab\xff", NO_SPECIAL_TOKENS)
    assert len(encoder._idle) == 1


@pytest.mark.threads
def test_threads_use_separate_sessions_and_return_them() -> None:
    spec = spec_of([(b"a", b"b"), (b" ", b"ab")])
    text = " ab abc ab" * 2000
    encoder = NativeEncoder(spec)
    expected = PythonEncoder(spec).encode(text.encode(), NO_SPECIAL_TOKENS)
    results: list[bool] = []

    def work() -> None:
        for _ in range(20):
            same = encoder.encode_to_array(text.encode(), NO_SPECIAL_TOKENS, UINT16).tolist() == expected
            results.append(same and encoder.encode(b" ab", NO_SPECIAL_TOKENS) == [257])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 80
    assert 1 <= len(encoder._idle) <= 4


def test_an_encoder_with_another_cache_shares_only_the_vocabulary() -> None:
    encoder = NativeEncoder(spec_of([(b"a", b"b")]))
    encoder.encode(b"ab", NO_SPECIAL_TOKENS)
    other = encoder.with_cache(0)
    assert other.encode(b"ab", NO_SPECIAL_TOKENS) == [256]
    assert other._model is encoder._model
    assert other._idle is not encoder._idle


def test_an_encoder_works_after_an_error() -> None:
    encoder = NativeEncoder(spec_of([(b"a", b"b")]))
    for _ in range(3):
        with pytest.raises(InvalidTextError):
            encoder.encode(b"ab\xff", NO_SPECIAL_TOKENS)
        assert encoder.encode(b"abab", NO_SPECIAL_TOKENS) == [256, 256]
    assert len(encoder._idle) == 1


def test_each_short_text_has_its_special_tokens() -> None:
    encoder = NativeEncoder(spec_of([(b"a", b"b")]))
    one, other = SpecialTokens.of({"<a>": 300}), SpecialTokens.of({"<b>": 400})
    for _ in range(2):
        assert encoder.encode(b"<a><b>", one) == [300, *b"<b>"]
        assert encoder.encode(b"<a><b>", other) == [*b"<a>", 400]
        assert encoder.encode(b"<a>", NO_SPECIAL_TOKENS) == [*b"<a>"]
    assert len(encoder._idle) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_can_use_the_inherited_encoder() -> None:
    encoder = NativeEncoder(spec_of([(b"a", b"b")]))
    encoder.encode(b"ab", NO_SPECIAL_TOKENS)
    child = os.fork()
    if child == 0:
        os._exit(int(encoder.encode(b"abab", NO_SPECIAL_TOKENS) != [256, 256]))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_native_memory_is_freed_with_its_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    freed: list[str] = []

    class SpyLibrary:
        def __getattr__(self, name: str) -> Any:
            function = getattr(library, name)
            if not name.endswith("_free"):
                return function
            return lambda handle: (freed.append(name), function(handle))

        def __getitem__(self, name: str) -> Any:
            return library[name]

    library = load_library("encode")
    monkeypatch.setattr(native_encoder, "load_library", lambda _name: SpyLibrary())
    specials = SpecialTokens.of({"<a>": 0})
    encoder = NativeEncoder(spec_of([]))
    encoder.encode(b"<a>", specials)
    del encoder, specials
    gc.collect()
    assert sorted(freed) == [f"bpeflow_{owned}_free" for owned in ("cache", "encoder", "model", "specials")]


@pytest.mark.parametrize("most", [0, 100])
def test_an_array_stays_when_the_next_text_is_encoded(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(native_encoder, "_REUSED_ROOM", most)
    encoder = NativeEncoder(spec_of([]))
    arrays = [encoder.encode_to_array(text, NO_SPECIAL_TOKENS, UINT16) for text in (b"ab", b"", b"cdef", b"g")]
    assert [array.tolist() for array in arrays] == [[97, 98], [], [99, 100, 101, 102], [103]]


def test_an_array_uses_no_more_memory_than_its_ids() -> None:
    ids = NativeEncoder(spec_of([(b"a", b"a"), (b"aa", b"aa")])).encode_to_array(
        b"a" * 40_000, NO_SPECIAL_TOKENS, UINT16
    )
    assert ids.base is None
    assert sys.getsizeof(ids) < 40_000
