"""--known, --pattern and --special_tokens: the commands that read a tokenizer use bare files of ranks."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

import bpeflow
from bpeflow.cli.main import main


@pytest.fixture
def ranks(tmp_path: Path) -> str:
    tokens = [*(bytes([byte]) for byte in range(256)), b"th", b"the"]
    path = tmp_path / "ranks.tiktoken"
    path.write_bytes(b"".join(b"%s %d\n" % (base64.b64encode(token), rank) for rank, token in enumerate(tokens)))
    return str(path)


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    (tmp_path / "corpus.txt").write_text("the the<s>then", encoding="utf-8")
    return str(tmp_path / "corpus.txt")


def test_a_corpus_is_encoded_and_decoded(ranks: str, corpus: str, tmp_path: Path) -> None:
    flags = ["--tokenizer", ranks, "--pattern", "cl100k", "--special_tokens", "<s>=300", "<t>", "--quiet"]
    assert main(["encode", *flags, "--input", corpus, "--out", str(tmp_path / "x.bin")]) == 0
    assert bpeflow.load_tokens(tmp_path / "x.bin").tolist() == [257, 32, 257, 300, 257, 110]
    assert main(["decode", *flags, "--input", str(tmp_path / "x.bin"), "--out", str(tmp_path / "again.txt")]) == 0
    assert (tmp_path / "again.txt").read_text(encoding="utf-8") == "the the<s>then"


def test_an_equals_sign_in_a_special_token(ranks: str, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["show", ranks, "--pattern", "gpt2", "--ids", "--special_tokens"]
    assert main([*flags, "<a=b>", "=", "<a=b>=300", "--", "<a=b>"]) == 0
    assert capsys.readouterr().out == "300\n"
    for text in ("<|pad|>=abc", "<|pad|>=-1", "<|pad|>=3a"):
        assert main([*flags, text]) == 2
        assert f"--special_tokens: need TEXT=ID with an id in digits, found '{text}'" in capsys.readouterr().err


def test_several_patterns_are_a_sequence(ranks: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(tmp_path / "tokenizer.json")
    assert main(["convert", ranks, target, "--to", "huggingface", "--pattern", r"\d", "gpt2"]) == 0
    assert capsys.readouterr().out == f"{target}\n"
    assert bpeflow.Tokenizer.load(target).pattern == (r"\d", "gpt2")


def test_a_published_name(ranks: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ranks that are far fewer are used with a warning."""
    assert main(["convert", ranks, str(tmp_path / "out"), "--to", "gpt2", "--known", "p50k_edit"]) == 0
    content = json.loads((tmp_path / "out" / "bpeflow.json").read_bytes())
    assert (content["pattern"], content["special_tokens"]["<|fim_suffix|>"]) == ("gpt2", 50283)
    warning = f"WARNING: {ranks}: as p50k_edit, 50,022 ids have no token, so it may be another tokenizer\n"
    assert capsys.readouterr().err == warning


def test_the_tokenizers_of_a_comparison(
    ranks: str, corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--pattern", "cl100k", "--special_tokens", "<s>", "--quiet"]
    assert main(["evaluate", "--tokenizer", ranks, "--input", corpus, *flags, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tokenizers"][0]["pattern"] == "cl100k"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "ranks without a pattern, and not one of the known published files: give the pattern"),
        (["--known", "gpt5"], "known: unknown tokenizer 'gpt5'"),
        (["--pattern", "gpt2", "--special_tokens", "<s>=256"], "special token '<s>': id 256 belongs to b'th'"),
    ],
)
def test_errors_are_one_line(
    flags: list[str], message: str, ranks: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", ranks, str(tmp_path / "out"), "--to", "gpt2", *flags]) in (1, 2)
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
