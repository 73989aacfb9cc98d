"""The commands that look at tokenizers: show, inspect, diff."""

from __future__ import annotations

import gzip
import io
import json
import re
import shutil
from pathlib import Path

import pytest
from small_tokenizer import EOT, save_tokenizer

from bpeflow.cli.main import main
from bpeflow.tokenizer.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tokenizer(tmp_path_factory.mktemp("tokenizer")))


@pytest.fixture(scope="module")
def smaller(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tokenizer(tmp_path_factory.mktemp("smaller"), merges=4))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    path.write_text(f"the low lower{EOT}lowest the the")
    return str(path)


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


def lines_of(text: str) -> list[str]:
    """Return the lines of tables, with a bar between two cells."""
    return [" | ".join(re.split("  +", line.strip())) for line in text.splitlines()]


def failure(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 2
    return capsys.readouterr().err


# ---- show ----


def test_show_prints_ids(capsys: pytest.CaptureFixture[str], tokenizer: str) -> None:
    ids = Tokenizer.load(tokenizer).encode("the low lower")
    assert output(capsys, "show", tokenizer, "--ids", "the low lower") == f"{' '.join(map(str, ids))}\n"
    shown = json.loads(output(capsys, "show", tokenizer, "--json", "the low lower"))
    assert [token["id"] for token in shown["tokens"]] == ids
    assert "".join(token["text"] for token in shown["tokens"]) == shown["text"] == "the low lower"


def test_backends_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    shown = json.loads(output(capsys, "backends", "--json"))
    assert {"name": "python", "available": True, "reason": None}.items() <= shown["backends"][-1].items()


def test_show_prints_tokens_ids_and_offsets(capsys: pytest.CaptureFixture[str], tokenizer: str) -> None:
    assert output(capsys, "show", tokenizer, f"slow{EOT}").splitlines() == [
        "chars  bytes  pre-token        tokens:ids",
        "0-4    0-4    'slow'           's':115 'low':258",
        "4-17   4-17   '<|endoftext|>'  '<|endoftext|>':256",
        "3 tokens, 1 of them special in 1 pre-token: 17 characters, 17 bytes, 5.67 bytes per token",
    ]


def test_show_explains(capsys: pytest.CaptureFixture[str], tokenizer: str) -> None:
    assert "    'l' + 'o' → 'lo' (rank 0)\n" in output(capsys, "show", tokenizer, "--explain", "slow")


@pytest.mark.parametrize(("variables", "coloured"), [({"FORCE_COLOR": "1"}, True), ({"NO_COLOR": "1"}, False)])
def test_show_is_coloured_on_terminals(
    capsys: pytest.CaptureFixture[str],
    tokenizer: str,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    coloured: bool,
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert ("\x1b[" in output(capsys, "show", tokenizer, "slow")) == coloured


def test_show_reads_standard_input(
    capsys: pytest.CaptureFixture[str], tokenizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for arguments in (["-"], ["--input", "-"]):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"low\xff")))
        assert main(["show", tokenizer, *arguments]) == 0
        assert "'low':258" in capsys.readouterr().out


def test_show_reads_the_beginning_of_files_in_any_format(
    capsys: pytest.CaptureFixture[str], tokenizer: str, corpus: str, tmp_path: Path
) -> None:
    assert f"'{EOT}':256" in output(capsys, "show", tokenizer, "--input", corpus)
    assert main(["show", tokenizer, "--input", corpus, "--first", "5b"]) == 0
    captured = capsys.readouterr()
    assert "2 tokens in 2 pre-tokens: 5 characters" not in captured.out
    assert "5 characters, 5 bytes" in captured.out
    assert "showing the first 5 bytes" in captured.err
    records = tmp_path / "records.jsonl.gz"
    records.write_bytes(gzip.compress(b'{"text": "low"}\n{"text": "the"}\n'))
    lines = output(capsys, "show", tokenizer, "--input", str(records)).splitlines()
    assert [line.split()[-1] for line in lines[1:-1]] == ["'low':258", f"'{EOT}':256", "'the':262", f"'{EOT}':256"]


def test_show_writes_a_page(capsys: pytest.CaptureFixture[str], tokenizer: str, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    assert output(capsys, "show", tokenizer, "slow <b>", "--html", str(path)) == f"{path}\n"
    page = path.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "rank 0" not in page
    assert "&lt;" in page
    output(capsys, "show", tokenizer, "slow", "--html", str(path), "--explain", "--overwrite")
    assert "rank 0" in path.read_text(encoding="utf-8")


def test_files_are_replaced_only_if_asked(capsys: pytest.CaptureFixture[str], tokenizer: str, corpus: str) -> None:
    page = f"{corpus}.html"
    shutil.copy(corpus, page)
    mine, folder = Path(corpus).read_bytes(), str(Path(corpus).parent)
    show = ("show", tokenizer, "--input", page, "--html")
    for *command, path in ((*show, page), ("report", tokenizer, "--out", page)):
        message = f"{path}: already exists; name another file, or give --overwrite to replace it"
        assert message in failure(capsys, *command, path)
        Path(folder, "made.html").mkdir(exist_ok=True)
        assert "made.html: is a folder; output can only create" in failure(capsys, *command, f"{folder}/made.html")
        assert Path(path).read_bytes() == mine
    assert f"{corpus}: already exists; name another file" in failure(capsys, "counts", "none", corpus)
    assert "is one of the input files and would be overwritten" in failure(capsys, *show, page, "--overwrite")
    assert Path(page).read_bytes() == mine


def test_show_needs_one_text(capsys: pytest.CaptureFixture[str], tokenizer: str, corpus: str) -> None:
    message = "after the TOKENIZER, give either a TEXT (or -), before all flags, or --input PATH"
    assert message in failure(capsys, "show", "hello world")
    assert message in failure(capsys, "show", tokenizer, "--pattern", "gpt2", "low")
    assert message in failure(capsys, "show", tokenizer, "low", "-i", corpus)


def test_show_replaces_arguments_that_are_not_utf8(capsys: pytest.CaptureFixture[str], tokenizer: str) -> None:
    assert "b'\\xef':239 b'\\xbf':191 b'\\xbd':189" in output(capsys, "show", tokenizer, "low\udcff")


def test_tables_in_a_pipe_have_no_spaces_at_the_ends_of_lines(
    capsys: pytest.CaptureFixture[str], tokenizer: str, smaller: str, corpus: str
) -> None:
    for command in (["inspect", tokenizer], ["diff", tokenizer, smaller], ["evaluate", "--tokenizer", tokenizer]):
        printed = output(capsys, *command, "--input", corpus)
        assert printed.count("\n") > 1
        assert not re.search(" $", printed, re.MULTILINE), printed


# ---- inspect ----


def test_inspect_describes_a_vocabulary(capsys: pytest.CaptureFixture[str], tokenizer: str) -> None:
    lines = lines_of(output(capsys, "inspect", tokenizer, "--quiet"))
    assert lines[:2] == ["vocabulary | 263 ids; 6 merges", "special | <|endoftext|> (256)"]
    assert "2 | 3 | ▏" in lines
    assert any(line.startswith("Latin | ") for line in lines)
    assert any(line.startswith("never reached | 13 tokens: their bytes are part of no text") for line in lines)
    assert any(line.startswith("perhaps reached | 115 tokens: their own text does not") for line in lines)
    assert not any("training count" in line for line in lines)


def test_inspect_describes_how_it_fits_a_corpus(
    capsys: pytest.CaptureFixture[str], tokenizer: str, corpus: str
) -> None:
    lines = lines_of(output(capsys, "inspect", tokenizer, "--input", corpus, "--quiet"))
    assert "corpus | 27 bytes in 6 pre-tokens, 5 distinct" in lines
    assert "13 tokens, 2.077 bytes per token" in lines
    prefixes = lines[lines.index("entries of the vocabulary | tokens | bytes per token") + 1 :]
    assert [line.rpartition(" | ")[0] for line in prefixes] == ["257 | 27 | 1.000", "263 | 13 | 2.077"]


@pytest.mark.parametrize("command", ["inspect", "diff"])
def test_a_corpus_that_is_not_utf8_is_refused(
    capsys: pytest.CaptureFixture[str], tokenizer: str, smaller: str, command: str, tmp_path: Path
) -> None:
    (tmp_path / "picture").write_bytes(b"\x89PNG")
    others = [smaller] if command == "diff" else []
    arguments = [command, tokenizer, *others, "--input", str(tmp_path)]
    assert "picture is not UTF-8 at byte 0" in failure(capsys, *arguments)
    assert main([*arguments, "--invalid_utf8", "replace"]) == 0


def test_inspect_prints_json(capsys: pytest.CaptureFixture[str], tokenizer: str, corpus: str) -> None:
    assert json.loads(output(capsys, "inspect", tokenizer, "--json", "--quiet"))["corpus"] is None
    content = json.loads(output(capsys, "inspect", tokenizer, "--input", corpus, "--json", "--quiet"))
    assert (content["ids"], content["merges"], content["special_tokens"]) == (263, 6, {EOT: 256})
    assert content["lengths"] == {"1": 256, "2": 3, "3": 3}
    assert len(content["incomplete"]) == 128
    assert content["never"][0] == {"id": 192, "text": "\ufffd", "hex": "c0", "reason": "not UTF-8"}
    assert content["corpus"]["tokens"] == 13
    assert content["corpus"]["used"][0] == {"id": 32, "text": " ", "hex": "20", "count": 4}


def test_inspect_takes_the_corpus_of_a_config(
    capsys: pytest.CaptureFixture[str], tokenizer: str, corpus: str, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"sources:\n  - paths: {corpus}\n    weight: 2\n")
    assert "6 pre-tokens" in output(capsys, "inspect", tokenizer, "--config", str(config), "--quiet")


# ---- diff ----


def test_diff_shows_what_is_shared_and_where_merges_part(
    capsys: pytest.CaptureFixture[str], tokenizer: str, smaller: str
) -> None:
    lines = lines_of(output(capsys, "diff", tokenizer, smaller, "--quiet"))
    assert "tokens | 260 shared, 260 of them with the same id" in lines
    assert "2 only in A: 'th' 'the'" in lines
    assert "0 only in B: none" in lines
    assert lines[-1] == "first difference at rank 4: A: 't' + 'h'; B: no more merges"


def test_diff_shows_tokens_side_by_side(
    capsys: pytest.CaptureFixture[str], tokenizer: str, smaller: str, corpus: str
) -> None:
    arguments = [tokenizer, smaller, "--text", "low the", "--input", corpus, "--quiet"]
    lines = lines_of(output(capsys, "diff", *arguments))
    text, words = lines.index("text"), lines.index("corpus")
    assert lines[text + 1 : text + 5] == [
        "A | 3 tokens for 7 bytes, 2.333 bytes per token",
        "B | 5 tokens for 7 bytes, 1.400 bytes per token",
        "bytes | A | B",
        "4-7 | 'the':262 | 't':116 'h':104 'e':101",
    ]
    assert lines[words + 1 :] == [
        "A | 13 tokens for 27 bytes, 2.077 bytes per token",
        "B | 19 tokens for 27 bytes, 1.421 bytes per token",
        "count | A | B",
        "2 | ' ' 'the' | ' ' 't' 'h' 'e'",
        "1 | 'the' | 't' 'h' 'e'",
    ]


def test_diff_prints_json(capsys: pytest.CaptureFixture[str], tokenizer: str, smaller: str, corpus: str) -> None:
    arguments = ["--text", "the", "--input", corpus, "--json", "--quiet"]
    content = json.loads(output(capsys, "diff", tokenizer, smaller, *arguments))
    assert content["vocabulary"]["first_difference"] == 4
    assert content["vocabulary"]["merges_there"] == [["74", "68"], None]
    assert content["text"]["tokens"] == [1, 3]
    assert content["text"]["blocks"][0]["first"][0].items() >= {"id": 262, "hex": "746865"}.items()
    assert content["corpus"]["tokens"] == [13, 19]
    assert content["corpus"]["pretokens"][0]["second"] == ["20", "74", "68", "65"]


def test_diff_refuses_what_it_cannot_compare(capsys: pytest.CaptureFixture[str], tokenizer: str, smaller: str) -> None:
    assert "is given twice" in failure(capsys, "diff", tokenizer, tokenizer)
    why = "standard input can be read only once, but diff reads the corpus several times"
    assert why in failure(capsys, "diff", tokenizer, smaller, "--input", "-")


@pytest.mark.parametrize("command", ["show", "inspect", "diff"])
def test_help_names_the_arguments(capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    text = capsys.readouterr().out
    assert f"  bpeflow {command} " in text
