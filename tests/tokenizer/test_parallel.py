"""Threads share the parts of a text, and join their ids in one array."""

from __future__ import annotations

import threading
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpeflow import Tokenizer
from bpeflow.pretokenize.regex import load_pretokenizer
from bpeflow.tokenizer import parallel
from bpeflow.tokenizer.native_encoder import NativeEncoder
from bpeflow.tokenizer.parallel import encode_text, in_threads
from bpeflow.tokenizer.special_tokens import NO_SPECIAL_TOKENS

UINT16 = np.dtype(np.uint16)


@pytest.mark.threads
@given(ids=st.lists(st.lists(st.integers(0, 65535), max_size=9), min_size=1, max_size=12), threads=st.integers(1, 3))
def test_ids_are_joined_in_the_order_of_the_text(ids: list[list[int]], threads: int) -> None:
    """Each part has three bytes, and, as after normalizing, perhaps more ids."""

    class Parts:
        def encode_to_array(self, text: memoryview, *_: object) -> np.ndarray[Any, Any]:
            return np.array(ids[text[0]], UINT16)

    text = b"".join(bytes([part] * 3) for part in range(len(ids)))
    spans = [(begin, begin + 3) for begin in range(0, len(text), 3)]
    with patch.object(parallel, "cut_text", return_value=spans), patch.object(parallel, "PART_BYTES", 0):
        joined = encode_text(Parts(), text, NO_SPECIAL_TOKENS, load_pretokenizer("gpt2"), UINT16, threads)  # type: ignore[arg-type]
    assert joined.tolist() == [token_id for part in ids for token_id in part]
    assert joined.dtype == UINT16


@pytest.mark.parametrize(("size", "threads", "part"), [(90, 1, 10), (320, 1, 20), (640, 2, 20), (6_400, 1, 40)])
def test_parts_grow_with_the_text_up_to_a_limit(size: int, threads: int, part: int) -> None:
    sizes = []

    class Parts:
        def encode_to_array(self, text: memoryview, *_: object) -> np.ndarray[Any, Any]:
            sizes.append(len(text))
            return np.zeros(1, UINT16)

    with patch.object(parallel, "PART_BYTES", 10), patch.object(parallel, "GROUP_BYTES", 40):
        encode_text(Parts(), b"a " * (size // 2), NO_SPECIAL_TOKENS, load_pretokenizer("gpt2"), UINT16, threads)  # type: ignore[arg-type]
    assert sum(sizes) == size
    assert all(part <= some <= part + 2 for some in sorted(sizes)[1:])


@pytest.mark.threads
def test_a_slow_part_does_not_hold_up_another_thread() -> None:
    done: list[int] = []
    all_others = threading.Event()

    def work(begin: int, end: int) -> int:
        if begin == 0:
            assert all_others.wait(20)
        done.append(begin)
        if len(done) == 99:
            all_others.set()
        return begin

    assert [*in_threads([(i, i + 1) for i in range(100)], work, 2)] == [*range(100)]
    assert done[-1] == 0


def test_a_large_text_is_encoded_in_parts_between_which_ctrl_c_is_seen() -> None:
    tokenizer = Tokenizer({byte: bytes([byte]) for byte in range(256)}, [])
    text, whole = "low lower " * 2_000, NativeEncoder.encode_to_array
    with (
        patch.object(parallel, "PART_BYTES", 5_000),
        patch.object(NativeEncoder, "encode_to_array", side_effect=whole, autospec=True) as part,
    ):
        assert tokenizer.encode(text) == list(text.encode())
    assert part.call_count == 4
