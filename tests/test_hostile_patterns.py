"""A tokenizer file can bring any pattern along. Whatever is done with it ends within seconds."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import bpeflow
from bpeflow import Explainer, PatternTimeoutError, Tokenizer
from bpeflow.cli.main import main
from bpeflow.errors import BpeflowError
from bpeflow.formats import any_format as formats
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.pretokenize import limits
from bpeflow.vocab import Vocab

#: Of these, the first compiles to an automaton, which is linear. The others run in `regex`.
PATTERNS = [r"(?:a|a)*b|.", r"(?<x>a(?&x)?)+b", r"(a)(?:\1|a)*b"]
TEXT = "a" * 60

#: Everything that splits a text with the pattern of a tokenizer.
USES: dict[str, Callable[[Tokenizer, Path], object]] = {
    "encode": lambda tokenizer, _: tokenizer.encode(TEXT),
    "encode_to_numpy": lambda tokenizer, _: tokenizer.encode_to_numpy(TEXT.encode()),
    "encode_batch": lambda tokenizer, _: tokenizer.encode_batch(["a", TEXT]),
    "encode_stream": lambda tokenizer, _: [*tokenizer.encode_iterable([TEXT])],
    "encode_file": lambda tokenizer, path: tokenizer.encode_file(path, path.with_suffix(".bin")),
    "offsets": lambda tokenizer, _: tokenizer.encode_with_offsets(TEXT),
    "explain": lambda tokenizer, _: Explainer(tokenizer).explain(TEXT),
    "count": lambda tokenizer, path: bpeflow.count(path, pattern=tokenizer.pattern, num_counter=1),
    "evaluate": lambda tokenizer, path: bpeflow.evaluate(tokenizer, path),
}


@pytest.fixture
def in_seconds() -> Iterator[None]:
    begin = time.process_time()
    yield
    assert time.process_time() - begin < 5


@pytest.fixture(params=PATTERNS)
def hostile(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a tokenizer with a pattern that can take exponential time."""
    monkeypatch.setattr(limits, "_SECONDS", 0.1)  # test_limits has the real one
    spec = TokenizerSpec(Vocab.build([(b"a", b"a")]), request.param)
    formats.write(spec, tmp_path, "gpt2")
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    return tmp_path


@pytest.mark.usefixtures("in_seconds")
@pytest.mark.parametrize("use", USES)
def test_a_hostile_pattern_ends_in_seconds(use: str, hostile: Path) -> None:
    tokenizer = Tokenizer.load(hostile)
    try:
        USES[use](tokenizer, hostile / "text.txt")
    except PatternTimeoutError as error:
        assert repr(tokenizer.pattern) in str(error)
        if use in ("encode_file", "count", "evaluate"):
            assert f"{hostile / 'text.txt'}: byte 0: " in str(error)
        if use == "encode_batch":
            assert str(error).startswith("at index 1 of the batch: ")
        if use == "encode_stream":
            assert str(error).startswith("after 0 characters of the stream: ")
    else:
        assert tokenizer.pattern == PATTERNS[0]


@pytest.mark.usefixtures("in_seconds")
def test_the_command_line_shows_the_error(hostile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["inspect", str(hostile), "--input", str(hostile / "text.txt")])
    shown = capsys.readouterr().err
    assert (status, "it may match the same text in very many ways" in shown) in ((1, True), (0, False))


@pytest.mark.usefixtures("in_seconds")
@pytest.mark.parametrize("pattern", [r"(?:(?:ab){10000}){10000}|.", r"(?:|a){1000000000}b|.", r"(?R)?A|."])
def test_a_tokenizer_json_with_a_hostile_pattern_is_refused(pattern: str, tmp_path: Path) -> None:
    formats.write(TokenizerSpec(Vocab.build([(b"a", b"a")]), r"\w+"), tmp_path, "huggingface")
    path = tmp_path / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = pattern
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(BpeflowError, match=r"tokenizer\.json: "):
        Tokenizer.load(path)
