"""How tokens and explanations are shown: safe, complete, and with the bytes of broken UTF-8."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from io import StringIO

import pytest
from adversarial import adversarial_text
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from bpeflow import Tokenizer
from bpeflow.look.render import shown_parts

MERGES = [(b"t", b"h"), (b"th", b"e"), (b"l", b"o"), (b"lo", b"w"), (b"o", b"w")]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    vocab = {byte: bytes([byte]) for byte in range(256)}
    vocab |= {256 + rank: left + right for rank, (left, right) in enumerate(MERGES)}
    return Tokenizer(vocab, MERGES, ["<b>&"])


def shown(token: bytes) -> str:
    return "".join(part.text for part in shown_parts(token))


class Page(HTMLParser):
    """Collects elements and text, and checks that elements are closed."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(content)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes += attributes
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@settings(max_examples=50)
@given(token=st.binary(max_size=12) | adversarial_text.map(str.encode))
def test_a_token_is_shown_in_printable_characters(token: bytes) -> None:
    assert shown(token).isprintable()


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (b" the", " the"),
        (b"\xf0\x9f", r"\xf0\x9f"),
        (b"a\xf0", r"a\xf0"),
        ("\u0301".encode(), "◌\u0301"),
        (b"\r\n\t", "␍⏎⇥"),
        (b"\x1b[31m", r"\x1b[31m"),
        ("\u200d\u202e".encode(), r"\u200d\u202e"),  # a joiner, and an override of the direction
    ],
)
def test_what_cannot_be_seen_is_escaped(token: bytes, expected: str) -> None:
    assert shown(token) == expected


@settings(max_examples=25)
@given(text=adversarial_text | st.sampled_from(["<b>&<script>alert('x')</script>", '" onclick="x', "</div>&amp;"]))
def test_html_has_the_text_and_no_elements_of_it(tokenizer: Tokenizer, text: str) -> None:
    explanation = tokenizer.explain(text)
    for content in (
        explanation.to_html(),
        explanation._repr_html_(),
        explanation.to_page(text, True),
    ):
        page = Page(content)
        assert not page.open
        assert page.elements <= {*("html", "head", "meta", "link", "title", "style", "body", "h1", "div", "span")} | {
            *("details", "summary")
        }
        names = {name for name, _ in page.attributes}
        assert not {name for name in names if name.startswith("on")}
        assert names <= {
            "class",
            "style",
            "title",
            "dir",
            "lang",
            "charset",
            "name",
            "content",
            "http-equiv",
            "rel",
            "href",
        }
    page = Page(explanation.to_html())
    expected = "│".join("".join(shown(token.bytes) for token in piece.tokens) for piece in explanation.pieces)
    assert page.text.replace("\n", "").replace("│", "") == expected.replace("│", "")


def test_html_has_ids_and_offsets_of_tokens(tokenizer: Tokenizer) -> None:
    fragment = tokenizer.explain("the é<b>&").to_html()
    assert re.search(r'background-color: #a6c8ff[^"]*" title="id 257, characters 0–3, bytes 0–3">the<', fragment)
    assert re.search(
        r'font-style: italic" title="id 195, characters 4–5, bytes 4–5, incomplete UTF-8">\\xc3</span>', fragment
    )
    assert 'title="id 261, characters 5–9, bytes 6–10">&lt;b&gt;&amp;</span>' in fragment
    assert "<script" not in fragment


def test_html_shows_dropped_text() -> None:
    plain = Tokenizer({byte: bytes([byte]) for byte in range(256)}, [], pattern="[a-z]", unmatched="drop")
    fragment = plain.explain("!a<&b?").to_html()
    assert Page(fragment).text == "!a<&b?"
    assert fragment.count("the pattern does not match this text") == 3


def test_a_page_loads_nothing(tokenizer: Tokenizer) -> None:
    page = tokenizer.explain("the low").to_page("runs/<x>")
    assert "<title>runs/&lt;x&gt;</title>" in page
    assert "'l' + 'o' → 'lo' (rank 2)" in Page(page).text
    for word in ("http:", "https:", "url(", "src=", "@import", "<script"):
        assert word not in page


def test_plain_lines_have_tokens_ids_and_offsets(tokenizer: Tokenizer) -> None:
    assert tokenizer.explain("thé low").table(steps=False).plain.splitlines() == [
        "chars  bytes  pre-token  tokens:ids",
        r"0-3    0-4    'thé'      'th':256 b'\xc3':195 b'\xa9':169",
        "3-7    4-8    ' low'     ' ':32 'low':259",
        "5 tokens in 2 pre-tokens: 7 characters, 8 bytes, 1.60 bytes per token",
    ]


def test_plain_lines_explain_merges_in_order_and_borders(tokenizer: Tokenizer) -> None:
    lines = str(tokenizer.explain("slow<b>&tho")).splitlines()
    assert lines[2:] == [
        "    'l' + 'o' → 'lo' (rank 2)",
        "    'lo' + 'w' → 'low' (rank 3)",
        "    's' | 'low': no merge joins them",
        "    'low' | '<b>&': border of a special token",
        "4-8    4-8    '<b>&'     '<b>&':261",
        "    '<b>&' | 'th': border of a special token",
        "8-11   8-11   'tho'      'th':256 'o':111",
        "    't' + 'h' → 'th' (rank 0)",
        "    'th' | 'o': no merge joins them",
        "5 tokens, 1 of them special in 2 pre-tokens: 11 characters, 11 bytes, 2.20 bytes per token",
    ]


def test_a_missed_merge_is_explained() -> None:
    merges = [(b"l", b"o"), (b"o", b"w")]
    vocab = {byte: bytes([byte]) for byte in range(256)} | {256: b"lo", 257: b"ow"}
    lines = str(Tokenizer(vocab, merges).explain("low")).splitlines()
    assert (
        "    'lo' | 'w': no merge joins them; 'o' + 'w' (rank 1) was possible until 'l' + 'o' came first, whose rank 0 "
        "is lower" in lines
    )


def test_a_terminal_shows_tokens_in_different_colours(tokenizer: Tokenizer) -> None:
    output = StringIO()
    console = Console(file=output, force_terminal=True, color_system="truecolor", width=100)
    explanation = tokenizer.explain("low\nthe\x1b]0;title\x07<b>&")
    console.print(explanation.coloured(), explanation.table(), sep="\n")
    shown_text = output.getvalue()
    assert "\x1b]0;" not in shown_text  # control characters of the text do not reach the terminal
    assert "\x07" not in shown_text
    grounds = [re.search(rf"48;([\d;]+)m{token}\x1b", shown_text) for token in ("low", "the")]
    assert None not in grounds
    assert len({ground[1] for ground in grounds if ground}) == 2
    assert "'lo' + 'w' → 'low' (rank 3)" in shown_text
