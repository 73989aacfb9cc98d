"""The cache that threads share: equal to the specification at every length, in any state, and from several threads."""

from __future__ import annotations

import ctypes
import mmap
import sys
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from small import spec_of

from bpeflow._util import native
from bpeflow.errors import OutOfMemoryError
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.pretokenize.native import native_instructions
from bpeflow.tokenizer import native_encoder
from bpeflow.tokenizer.native_encoder import NativeEncoder
from bpeflow.tokenizer.python_encoder import PythonEncoder
from bpeflow.tokenizer.special_tokens import NO_SPECIAL_TOKENS, SpecialTokens
from bpeflow.vocab import Merge

UINT16 = np.dtype(np.uint16)

#: Tokens of many lengths: of a letter, of dots, of dots and zero bytes.
MERGES: list[Merge] = [
    *[(b"a", b"a"), (b"aa", b"a"), (b"aa", b"aa"), (b"aaaa", b"aaa"), (b"aaaa", b"aaaa")],
    *[(b"aaaaaaaa", b"a"), (b"aaaaaaaa", b"aaaaaaa"), (b"aaaaaaaa", b"aaaaaaaa"), (b"aaaaaaaaaaaaaaaa", b"a")],
    *[(b".", b"."), (b"..", b"."), (b"..", b".."), (b"....", b"..."), (b"....", b"....")],
    *[(b"\0", b"\0"), (b".", b"\0"), (b"...", b"\0"), (b".......", b"\0")],
    *[(b" ", b"a"), (b"x", b"y"), (b"1", b"2")],
]


pytestmark = pytest.mark.usefixtures("native_library")


def spec(pattern: str = "gpt2") -> TokenizerSpec:
    return spec_of(MERGES, pattern)


def different_words(count: int) -> bytes:
    """Return different words of 3 to 40 bytes, in an order in which most recur at once and later."""
    words = [f" {'a' * (n % 13)}{'xy' * (n % 7)}{'é' * (n % 3)}{n * 2654435761 % 1000003}" for n in range(count)]
    return "".join(words[n // 2] + words[n] for n in range(count)).encode()


@pytest.mark.parametrize("pattern", ["gpt2", r"[^ ]+| "])
def test_words_at_every_length_around_a_machine_word(pattern: str) -> None:
    lengths = (1, 6, 7, 8, 9, 14, 15, 16, 17, 24, 31, 32, 33)
    words = [unit * length for unit in (b"a", b".", b"\0", b"x") for length in lengths]
    words += [word[:-1] + b"\0" for word in words if word[:1] == b"."]
    words += [word[: len(word) // 2] + b"\0" + word[len(word) // 2 :] for word in words if word[:1] == b"."]
    text = b" ".join(words + words[::-1])
    expected = PythonEncoder(spec(pattern)).encode(text, NO_SPECIAL_TOKENS)
    for instructions in native_instructions():
        encoder = NativeEncoder(spec(pattern), instructions=instructions)
        for _ in range(2):
            assert encoder.encode_to_array(text, NO_SPECIAL_TOKENS, UINT16).tolist() == expected
        assert [id_ for word in words for id_ in encoder.encode(word, NO_SPECIAL_TOKENS)] == [
            id_ for word in words for id_ in PythonEncoder(spec(pattern)).encode(word, NO_SPECIAL_TOKENS)
        ]


def test_a_text_is_not_read_beyond_its_end() -> None:
    """The page after the text must not be read. The process would crash."""
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 3 * page)
    guard = ctypes.addressof(ctypes.c_char.from_buffer(memory, 2 * page))
    assert ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(page), 0) == 0
    python = PythonEncoder(spec())
    for end in (b"a", b" aaaaaa", b" aaaaaaa", b" aaaaaaaaaaaaaa", b" aaaaaaaaaaaaaaaa", b"..\0", "日本".encode()):
        text = (b"aa aaaa x xy " * 500)[-page:] + end
        memory[2 * page - len(text) : 2 * page] = text
        for instructions in native_instructions():
            encoder = NativeEncoder(spec(), instructions=instructions)
            for start in (-len(text), -len(end), -len(end) - 40):
                view = memoryview(memory)[2 * page + start : 2 * page]
                expected = python.encode(text[start:], NO_SPECIAL_TOKENS)
                for _ in range(2):
                    assert encoder.encode_to_array(view, NO_SPECIAL_TOKENS, UINT16).tolist() == expected


@pytest.mark.parametrize("dtype", [UINT16, np.dtype(np.uint32)], ids=str)
def test_ids_are_not_written_beyond_the_capacity(dtype: np.dtype[Any]) -> None:
    """Runs of short tokens are copied several at a time, and so are the few ids of other pre-tokens."""
    text = "".join(" a" * run + " qr" * (run % 3) + " qrstuvw" * (run % 2) for run in range(20)).encode()
    expected = PythonEncoder(spec()).encode(text, NO_SPECIAL_TOKENS)
    encoder = NativeEncoder(spec())
    session, unused = encoder._take_session(), 0xABC
    for capacity in range(len(expected) + 1):
        ids = np.full(len(expected) + 64, unused, dtype)
        encoding = session.encoding(encoder._pattern, None, ids)
        encoding.capacity = capacity
        end = ctypes.byref(ctypes.c_uint64(len(text)))
        status = encoder._library.bpeflow_encoder_encode(session.handle, ctypes.byref(encoding), text, end, 1, None)
        assert status == (0 if capacity == len(expected) else 8)
        assert (ids[capacity:] == unused).all()
    assert ids[: encoding.written].tolist() == expected


@pytest.mark.parametrize("length", [127, 128, 129])
def test_pretokens_are_merged_alike_on_both_sides_of_the_limit(length: int) -> None:
    """Longer ones are merged in another way."""
    word = "".join("a" * (1 + n % 4) + "xqy"[n % 3] for n in range(length))[:length].encode()
    expected = PythonEncoder(spec()).encode(word, NO_SPECIAL_TOKENS)
    assert NativeEncoder(spec()).encode(word, NO_SPECIAL_TOKENS) == expected


@pytest.mark.parametrize("cache_bytes", [0, 100, 1000, 20_000, 100_000, 1 << 24])
def test_a_cache_that_grows_or_fills_up_within_a_call_changes_nothing(cache_bytes: int) -> None:
    text = different_words(3000) + b" " + b"xyz." * 5000 + different_words(500)
    expected = PythonEncoder(spec()).encode(text, NO_SPECIAL_TOKENS)
    encoder = NativeEncoder(spec(), cache_bytes)
    for _ in range(3):
        assert encoder.encode_to_array(text, NO_SPECIAL_TOKENS, UINT16).tolist() == expected


@pytest.mark.parametrize("equal", [slice(0, 8), slice(8, 15)], ids=["second half", "first half"])
def test_words_with_equal_tags_are_told_apart(equal: slice) -> None:
    """The index knows half of the hash only. Words that have it in common must not share ids."""
    digits = np.random.default_rng(5).integers(ord("0"), ord("9") + 1, (1 << 18, 15), np.uint8)
    digits[:, equal] = ord("1")
    _, first, inverse = np.unique(_tags(digits), return_index=True, return_inverse=True)
    twins = np.flatnonzero(first[inverse] != np.arange(len(digits)))
    twins = twins[(digits[twins] != digits[first[inverse][twins]]).any(1)]
    assert len(twins) > 3
    pairs = np.stack([first[inverse][twins], twins], 1).ravel()
    words = [digits[i].tobytes() for i in pairs]
    encoder = NativeEncoder(spec())
    text = b"\n".join(words)  # a space would belong to the word
    expected = PythonEncoder(spec()).encode(text, NO_SPECIAL_TOKENS)
    for _ in range(2):
        assert encoder.encode_to_array(text, NO_SPECIAL_TOKENS, UINT16).tolist() == expected


def _tags(words: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return the lower half of the hash of words of 15 bytes, as ext/common/hash.hpp and cache_key.hpp compute it."""
    keys = np.concatenate([words, np.full((len(words), 1), 15, np.uint8)], 1).view("<u8")
    hashed = np.zeros(len(words), np.uint64)
    for word in keys.T:
        hashed = (hashed ^ word) * np.uint64(0x9E3779B97F4A7C15)
        hashed ^= hashed >> np.uint64(32)
    hashed *= np.uint64(0xD6E8FEB86659FD93)
    return (hashed ^ hashed >> np.uint64(32)) & np.uint64(0xFFFFFFFF)


@pytest.mark.threads
@pytest.mark.parametrize("cache_bytes", [3000, 200_000, 1 << 24], ids=["full at once", "full", "growing"])
def test_threads_share_new_words(cache_bytes: int) -> None:
    """All threads meet the same new words at the same time: while the index grows, and when the cache is full."""
    text = different_words(4000)
    expected = PythonEncoder(spec()).encode(text, NO_SPECIAL_TOKENS)
    encoder = NativeEncoder(spec(), cache_bytes)
    barrier = threading.Barrier(4)
    same: list[bool] = []

    def work() -> None:
        barrier.wait()
        arrays = [encoder.encode_to_array(text, NO_SPECIAL_TOKENS, UINT16) for _ in range(3)]
        same.extend(array.tolist() == expected for array in arrays)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert same == [True] * 12


@pytest.mark.not_sanitized
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_words_of_one_session_are_known_to_all() -> None:
    """A second session takes no memory for words that the first one has met."""
    text = different_words(20_000)
    encoder = NativeEncoder(spec())
    first, second = encoder._take_session(), encoder._take_session()
    ids = np.empty(len(text), UINT16)

    def growth(session: native_encoder.Session) -> int:
        before = _dirty_memory()
        encoding = session.encoding(encoder._pattern, None, ids)
        end = ctypes.byref(ctypes.c_uint64(len(text)))
        status = encoder._library.bpeflow_encoder_encode(session.handle, ctypes.byref(encoding), text, end, 1, None)
        assert status == 0
        return _dirty_memory() - before

    ids[:] = 0
    new, known = growth(first), growth(second)
    assert new > 600_000
    assert known < new / 3


def _dirty_memory() -> int:
    """Return the bytes of memory that this process has to itself."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as lines:  # noqa: PTH123
        sizes = {name: int(size) for name, size, *_ in (line.split() for line in list(lines)[1:])}
    return sizes["Private_Dirty:"] * 1024


def test_special_tokens_are_held_during_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may put an equal one into the encoder's cache meanwhile, or the cache may be emptied."""
    encoder = NativeEncoder(spec())
    held = []
    make, address = native_encoder.Session.encoding, native.address

    def encoding(self, pattern, specials, ids):
        held.append(weakref.ref(specials))
        encoder._specials.clear()
        return make(self, pattern, specials, ids)

    def alive(text):
        assert held[-1]() is not None
        return address(text)

    monkeypatch.setattr(native_encoder.Session, "encoding", encoding)
    monkeypatch.setattr(native_encoder, "address", alive)
    specials = SpecialTokens.of({"<s>": 97})
    assert len(encoder.encode_to_array(memoryview(b"ab<s>" * 1000), specials, np.dtype(np.uint32)))
    assert held


def test_a_cache_that_memory_has_no_room_for_is_an_error_with_the_remedy() -> None:
    with pytest.raises(OutOfMemoryError, match=r"a cache of .*: out of memory .*: give a smaller cache_bytes"):
        NativeEncoder(spec_of(MERGES), 1 << 60)
