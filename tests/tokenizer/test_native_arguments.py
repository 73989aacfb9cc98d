"""What the native encoder rejects: text that is not UTF-8, unknown ids, and arguments that violate its header."""

from __future__ import annotations

from ctypes import byref, c_char_p, c_uint64, c_void_p
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from small import spec_of

from bpeflow._util import native
from bpeflow._util.native import Prepared, Vocabulary, load_library
from bpeflow.counting.units import Units
from bpeflow.errors import InvalidTextError, NativeError, UnknownTokenError
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.pretokenize.patterns import NAMED_PATTERNS
from bpeflow.tokenizer.native_encoder import NativeEncoder
from bpeflow.tokenizer.special_tokens import NO_SPECIAL_TOKENS, SpecialTokens
from bpeflow.vocab import Vocab

UINT16 = np.dtype(np.uint16)


pytestmark = pytest.mark.usefixtures("native_library")


def test_an_unknown_id_is_named_with_its_index() -> None:
    vocab = Vocab((*spec_of([]).vocab.tokens, b"", b"longer than sixteen bytes"), {}, ())
    encoder = NativeEncoder(TokenizerSpec(vocab))
    with pytest.raises(UnknownTokenError, match=r"unknown id 258 at index 2: .* 0 to 257"):
        encoder.decode(np.array([97, 257, 258], np.uint16))
    with pytest.raises(UnknownTokenError, match="id 256 at index 1 has no token"):
        encoder.decode(np.array([97, 256, 258], np.uint32))
    with pytest.raises(UnknownTokenError, match="unknown id 4294967295 at index 0"):
        encoder.decode(np.array([2**32 - 1], np.uint32))


@pytest.mark.slow
@example(text=b"\x80" * 70)
@example(text=b"\xf0\x9f")
@given(text=st.binary().filter(lambda text: not _is_utf8(text)))
def test_text_that_is_not_utf8_is_rejected(text: bytes) -> None:
    for pattern in NAMED_PATTERNS:
        with pytest.raises(InvalidTextError, match=r"not UTF-8: .* at byte"):
            NativeEncoder(spec_of([], pattern)).encode_to_array(text, NO_SPECIAL_TOKENS, UINT16)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_a_dtype_too_small_for_the_vocabulary_is_rejected() -> None:
    vocab = Vocab((*spec_of([]).vocab.tokens, *[b""] * (1 << 16)), {}, ())
    with pytest.raises(NativeError, match="rules"):
        NativeEncoder(TokenizerSpec(vocab)).encode_to_array(b"a", NO_SPECIAL_TOKENS, UINT16)
    with pytest.raises(NativeError, match="rules"):
        NativeEncoder(spec_of([])).encode_to_array(b"a", SpecialTokens.of({"<a>": 1 << 16}), UINT16)


def test_invalid_arguments_return_a_status() -> None:
    library = load_library("encode")
    encoder = NativeEncoder(spec_of([]))
    session, pattern = encoder._take_session(), encoder._pattern
    ids = np.empty(4, np.uint32)
    encode = library.bpeflow_encoder_encode

    def status(text: bytes = b"abc", *, changed: dict[str, Any] | None = None) -> int:
        encoding = session.encoding(pattern, None, ids)
        for name, value in (changed or {}).items():
            setattr(encoding, name, value)
        result: int = encode(session.handle, byref(encoding), text, byref(c_uint64(len(text))), 1, None)
        return result

    assert status() == 0
    assert status(b"too long") == 8
    assert status(b"too long", changed={"pattern": None}) == 8
    with pytest.raises(NativeError, match="rules"):
        library.bpeflow_pattern_named(5, byref(c_void_p()))
    assert status(changed={"id_size": 3}) == 4
    assert status(b"\xff") == 7
    assert status(b"\xff", changed={"pattern": None}) == 0
    end = c_uint64(1)
    assert encode(None, byref(session.encoding(pattern, None, ids)), b"a", byref(end), 1, None) == 4
    assert encode(session.handle, None, b"a", byref(end), 1, None) == 4
    assert encode(session.handle, byref(session.encoding(pattern, None, ids)), None, byref(end), 1, None) == 4
    encode_texts = library.bpeflow_encoder_encode_texts
    starts, size, ends = np.array([c_void_p.from_buffer(c_char_p(b"abc")).value], np.uint64), c_uint64(3), c_uint64()
    of_texts = (byref(session.encoding(pattern, None, ids)), starts.ctypes.data, byref(size), 1, byref(ends))
    assert encode_texts(session.handle, *of_texts) == 0
    assert ends.value == 3
    for missing in range(6):
        arguments = [session.handle, *of_texts]
        arguments[missing] = None if missing != 4 else 0
        assert encode_texts(*arguments) == (0 if missing == 4 else 4)
    assert library.bpeflow_find_texts(None, 1, None, None, None, None) == 0
    prepared = Prepared(session.handle, session.encoding(pattern, None, ids))
    encode_prepared = library.bpeflow_encode_prepared
    assert encode_prepared(byref(prepared), b"abc", 3) == 3
    assert encode_prepared(byref(prepared), b"too long", 8) == -8
    assert encode_prepared(byref(prepared), b"\xff", 1) == -7
    assert encode_prepared(byref(prepared), b"abc", -1) == -4
    assert encode_prepared(byref(prepared), None, 1) == -4
    assert encode_prepared(None, b"abc", 3) == -4
    assert encode_prepared(byref(Prepared()), b"abc", 3) == -4
    descending = np.array([2, 1], np.uint64)
    encoding = session.encoding(pattern, None, ids)
    assert encode(session.handle, byref(encoding), b"abc", descending.ctypes.data, 2, None) == 4
    assert encode(session.handle, byref(encoding), b"abc", None, 2, None) == 4
    assert encode(session.handle, byref(encoding), None, None, 0, None) == 0
    with pytest.raises(NativeError, match="rules"):
        library.bpeflow_encoder_new(encoder._model, encoder._cache, b"mmx", byref(c_void_p()))
    with pytest.raises(NativeError, match="rules"):
        library.bpeflow_encoder_new(encoder._model, None, None, byref(c_void_p()))
    with pytest.raises(NativeError, match="rules"):
        library.bpeflow_specials_new(b"a", np.zeros(1, np.uint32).ctypes.data, ids.ctypes.data, 1, byref(c_void_p()))
    size = c_uint64()
    decode = library.bpeflow_model_decode
    assert decode(encoder._model, ids.ctypes.data, 3, 1, None, byref(size)) == 4
    assert decode(encoder._model, ids.ctypes.data, 4, 1, None, None) == 4
    assert decode(encoder._model, ids.ctypes.data, 4, 4, ids.ctypes.data, byref(size)) == 8


@pytest.mark.parametrize(
    "invalid",
    [
        {"tokens": 0},
        {"tokens": 2**32 - 1},
        {"token_data": None},
        {"ordinary_offsets": None},
        {"byte_ids": None},
        {"merges": None},
        {"merge_count": 2**32 - 1},
        {"tokens": 257},  # fewer than the merges refer to
    ],
    ids=str,
)
def test_an_invalid_vocabulary_returns_a_status(invalid: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    class Invalid(Vocabulary):
        def __init__(self, *values: Any) -> None:
            super().__init__(*values)
            for name, value in invalid.items():
                setattr(self, name, value)

    monkeypatch.setattr(native, "Vocabulary", Invalid)
    spec = spec_of([(b"a", b"b"), (b"ab", b"c")])
    for create in (lambda: NativeEncoder(spec), lambda: Units(spec).handle):
        with pytest.raises(NativeError, match="rules"):
            create()
