"""Refused patterns are read differently by another engine, and all other patterns are read identically."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from peers import CHARACTERS

from bpeflow.errors import FormatError
from bpeflow.formats.dialects import Engine, pattern_to_regex, refuse_differences, regex_to_pattern
from bpeflow.pretokenize.patterns import NAMED_PATTERNS
from bpeflow.pretokenize.regex import load_pretokenizer

ENGINES: tuple[Engine, ...] = ("fancy-regex", "Oniguruma")

#: A pattern, a text, and the engines that split it differently than the regex module or do not accept the pattern.
DIFFERENT = [
    (r"\p{N}{1,3}+", "12345", ["Oniguruma"]),
    (r"\w+$", "ab\n", ["fancy-regex"]),
    (r"\w+$", "ab\ncd", ["Oniguruma"]),
    (r"^\w", "ab\ncd", ["Oniguruma"]),
    (r"\w+\Z", "ab\n", ["fancy-regex", "Oniguruma"]),
    (r"[a[b]]", "a[b]]", ["fancy-regex", "Oniguruma"]),
    (r"[[:alpha:]]", "é", ["fancy-regex"]),
    (r"[a&&b]", "a&b", ["fancy-regex", "Oniguruma"]),
    (r"[a-z--b]", "ab-", ["fancy-regex"]),
    (r"[ab~~b]", "ab~", ["fancy-regex"]),
    (r"\h+", "ab \t", ["fancy-regex", "Oniguruma"]),
    (r"(?m:^a.b)", "a\nb", ["Oniguruma"]),
    (r"(?s)a.b", "a\nb", ["Oniguruma"]),
    (r"\N", "a\nb", ["fancy-regex"]),
]

#: Patterns with constructs that people use.
SAME = [
    *[pattern.replace("{1,3}+", "{1,3}") for pattern in NAMED_PATTERNS.values() if "$" not in pattern],
    r"[^\s]+|\s+",
    r"\d{1,3}|\D",
    r" ?\p{L}++|\s++|a\Kb|[\s\S]",
    r"(?i:re|s)|\p{Lu}\p{Ll}*|[\s\S]",
    r"(?=[aZ])\S+|.",
    r"(?<=\s)\S|\p{M}|[^\p{L}\]$^]+?",
    r"(?>\r\n|\r)|\p{P}+(?!\S)|\$|[\s\S](?![\s\S])",
]


def pieces(engine: Engine, pattern: str, text: str) -> list[str] | None:
    """Return the pre-tokens that an engine splits a text into; None if it does not accept the pattern."""
    if engine == "Oniguruma":
        tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
        try:
            splitter = tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "removed", invert=True)
        except Exception:
            return None
        return [piece for piece, _ in splitter.pre_tokenize_str(text) if piece]
    tiktoken = pytest.importorskip("tiktoken", reason="tiktoken is not installed")
    parts = {text[i:j].encode() for i in range(len(text)) for j in range(i + 1, len(text) + 1)}
    ranks = {part: rank for rank, part in enumerate(sorted(parts | {bytes([byte]) for byte in range(256)}))}
    try:
        encoding = tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    except ValueError:
        return None
    return [encoding.decode([token_id]) for token_id in encoding.encode_ordinary(text)]


@pytest.mark.parametrize(("pattern", "text", "engines"), DIFFERENT)
def test_refused_patterns_are_read_differently(pattern: str, text: str, engines: list[Engine]) -> None:
    for engine in engines:
        assert pieces(engine, pattern, text) != load_pretokenizer(pattern, "drop").pretokens(text)
        with pytest.raises(FormatError, match=rf"x: pattern .* {engine} and the regex module read"):
            refuse_differences(pattern, engine, Path("x"))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("pattern", [r"\s*|\S", r"a?", r"(?:)", r"(?=[A-Z])|\w+"])
def test_patterns_that_match_the_empty_string_are_refused(pattern: str, engine: Engine) -> None:
    """After an empty match the regex module tries the same position again, Oniguruma moves on, and tiktoken panics."""
    assert load_pretokenizer(r"\s*|\S").pretokens("0") == ["0"]
    assert pieces("Oniguruma", r"\s*|\S", "0") == []
    with pytest.raises(FormatError, match="can match the empty string"):
        refuse_differences(pattern, engine, Path("x"))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("pattern", SAME)
@settings(max_examples=40)
@given(text=st.text(st.sampled_from(CHARACTERS.replace("²", "").replace("\u200d", "")), max_size=20))
def test_patterns_that_are_not_refused_are_read_identically(pattern: str, engine: Engine, text: str) -> None:
    refuse_differences(pattern, engine, Path("x"))
    assert pieces(engine, pattern, text) == load_pretokenizer(pattern, "drop").pretokens(text)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", NAMED_PATTERNS)
@settings(max_examples=40)
@example(text="12345 a\n\n")
@given(text=st.text(st.sampled_from(CHARACTERS), max_size=20))
def test_named_patterns_are_read_identically_in_the_spelling_for_each_engine(
    name: str, engine: Engine, text: str
) -> None:
    regex = pattern_to_regex(name, engine, Path("x"))
    assert regex_to_pattern(regex) == name
    assert pieces(engine, regex, text) == load_pretokenizer(name).pretokens(text)
