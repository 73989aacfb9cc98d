"""Formatting of tokens for people."""

from __future__ import annotations

import re
from ast import literal_eval

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from bpeflow._util.text import show_token


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        (b"", "''"),
        (b"the", "'the'"),
        (b" " * 3776, "' ' × 3776"),
        (b"-=" * 50, "'-=' × 50"),
        (b"--", "'--'"),
        (b"\xff" * 40, r"b'\xff' × 40"),
        (b"a\n\xe2\x80", r"b'a\n\xe2\x80'"),
        ("\u202e\x1b[2J".encode(), r"'\u202e\x1b[2J'"),
        (b"abcdefghijklmnopqrstuvwxyz", "'abcdefghijklmnopq'…"),
        ("中文字符集合编码测试".encode(), "'中文字符集合编码'…"),
    ],
)
def test_tokens_are_shown_unambiguously(token: bytes, shown: str) -> None:
    assert show_token(token, 20) == shown


@given(
    unit=st.text(max_size=8).map(str.encode) | st.binary(max_size=4) | st.text("'\"\\\n", max_size=12).map(str.encode),
    times=st.integers(1, 60),
    width=st.integers(3, 60),
)
@example(unit=b"'a\"", times=1, width=6)
def test_a_shown_token_fits_and_reads_back(unit: bytes, times: int, width: int) -> None:
    token = unit * times
    shown = show_token(token, width)
    assert cell_len(shown) <= width
    repeated = re.fullmatch(r"(b?['\"].*['\"]) × (\d+)", shown)
    literal, count = repeated.groups() if repeated else (shown.removesuffix("…"), "1")
    value = literal_eval(literal or "''")
    part = (value.encode() if isinstance(value, str) else value) * int(count)
    assert token.startswith(part) if shown.endswith("…") else part == token
