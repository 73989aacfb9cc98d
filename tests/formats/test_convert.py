"""Conversion between all formats, recognition of formats, `convert` and `output.formats`."""

from __future__ import annotations

import itertools
import json
import logging
from pathlib import Path

import pytest

import bpeflow
from bpeflow.cli.main import main
from bpeflow.errors import ConfigError, FormatError
from bpeflow.formats import any_format as formats
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.tokenizer.tokenizer import Tokenizer
from bpeflow.vocab import Vocab

NAMES = [known.name for known in formats.FORMATS]
TEXT = "low lower lowest newer wider, the newest.\n\n  naïve 日本 12345<|endoftext|>don't<pad>"
SPECIALS = ["<|endoftext|>", "<pad>"]


def train(folder: Path, **settings: object) -> Path:
    corpus = folder / "corpus.txt"
    corpus.write_text(TEXT * 20, encoding="utf-8")
    values = {"input": corpus, "vocab_size": 300, "special_tokens": SPECIALS, "out_dir": folder / "run", **settings}
    bpeflow.train(values)
    return folder / "run"


@pytest.mark.parametrize(("source", "target"), list(itertools.product(NAMES, NAMES)))
def test_every_format_converts_to_every_other(source: str, target: str, tmp_path: Path) -> None:
    run = train(tmp_path)
    spec = formats.load(run)
    formats.save(spec, tmp_path / "a", source)
    formats.save(formats.load(tmp_path / "a"), tmp_path / "b", target)
    again = formats.load(tmp_path / "b")
    assert again.vocab == spec.vocab
    assert again.pattern == "gpt2"
    assert Tokenizer.from_spec(again).encode(TEXT) == Tokenizer.from_spec(spec).encode(TEXT)


def test_convert_writes_files_and_prints_their_paths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train(tmp_path)
    for name, path, files in [
        ("huggingface", tmp_path / "x.json", ["x.json"]),
        ("tiktoken", tmp_path / "x.tiktoken", ["x.tiktoken", "x.tiktoken.json"]),
        ("tiktoken", tmp_path / "folder", ["folder/tokenizer.tiktoken", "folder/tokenizer.tiktoken.json"]),
        ("gpt2", tmp_path / "g", ["g/vocab.json", "g/merges.txt", "g/bpeflow.json"]),
        ("gpt2", tmp_path / "h" / "vocab.json", ["h/vocab.json", "h/merges.txt", "h/bpeflow.json"]),
    ]:
        assert main(["convert", str(run), str(path), "--to", name]) == 0
        assert capsys.readouterr().out.split() == [str(tmp_path / file) for file in files]
        assert all((tmp_path / file).is_file() for file in files)
        assert formats.load(path).vocab == formats.load(run).vocab


def test_convert_takes_the_format_from_the_name_and_knows_short_names(tmp_path: Path) -> None:
    run = str(train(tmp_path))
    for path, flags, file in [
        ("x.json", (), "x.json"),
        ("x.tiktoken", (), "x.tiktoken"),
        ("folder", (), "folder/bpeflow.json"),
        ("hf", ("--to", "hf"), "hf/tokenizer.json"),
    ]:
        assert main(["convert", run, str(tmp_path / path), *flags]) == 0
        assert (tmp_path / file).is_file()
    assert [path.name for path in Tokenizer.load(run).save(tmp_path / "y.json", "hf")] == ["y.json"]


def test_convert_reports_wrong_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train(tmp_path)
    for arguments, message in [
        (
            [str(run), str(tmp_path / "x"), "--to", "sentencepiece"],
            "unknown format 'sentencepiece'; there are: gpt2, hugg",
        ),
        (
            [str(run), str(tmp_path / "x.tiktoken"), "--to", "huggingface"],
            "x.tiktoken is not the name of a file in the huggingface format: name a folder, or a",
        ),
        (
            [str(tmp_path / "no"), str(tmp_path / "x"), "--to", "gpt2"],
            f"{tmp_path / 'no'}: no such file or folder",
        ),
        (
            [str(tmp_path), str(tmp_path / "x"), "--to", "gpt2"],
            f"{tmp_path}: no tokenizer in this folder; need one of vocab.json",
        ),
    ]:
        assert main(["convert", *arguments]) == 2
        assert message in capsys.readouterr().err
    assert not [*tmp_path.glob("x*")]
    (tmp_path / "x.tiktoken").mkdir()  # a folder is meant
    assert main(["convert", str(run), str(tmp_path / "x.tiktoken"), "--to", "huggingface"]) == 0


def test_convert_shows_warnings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train(tmp_path, special_tokens=["<|a|>", "<|a|>b"])
    assert main(["convert", str(run), str(tmp_path / "x"), "--to", "tiktoken"]) == 0
    assert "special token '<|a|>' is a prefix of '<|a|>b'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "vocab.txt",
            b"[PAD]\n[UNK]\n",
            "a WordPiece vocabulary, which transformers reads; bpeflow reads byte-level BPE only",
        ),
        ("spiece.model", b"\x0a\x0e", "a SentencePiece model, which sentencepiece reads; bpeflow"),
        ("tokenizer.model", b"\x0a\x0e\x0a\x05<unk>\x15", "a SentencePiece model, which sentencepiece reads; bpeflow"),
        ("merges.txt", b"#version: 0.2\na b\n", "merges without their vocabulary; for vocab.json and "),
        ("gpt2.vocab.bpe", b"#version: 0.2\na b\n", "merges without their vocabulary; for vocab.json and "),
        ("vocab.pkl", b"\x80\x04}.", "a pickle, which can run any code when it is read"),
        ("corpus.bin", b"\x0a\x0e", "not the name of a known format; need vocab.json, *.json, *.tiktoken, or"),
    ],
)
def test_other_kinds_of_tokenizers_are_refused_with_their_kind(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(FormatError) as caught:
        formats.load(path)
    assert str(caught.value).startswith(f"{path}: {message}")
    if name == "vocab.pkl":
        with pytest.raises(FormatError, match=message):
            Tokenizer.from_files(path, path)
    if name in ("vocab.txt", "spiece.model"):
        with pytest.raises(FormatError, match=message):
            formats.load(tmp_path)


def test_a_unigram_model_is_refused_with_its_type(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"type": "Unigram", "vocab": [["a", -1.0]]}}))
    with pytest.raises(
        FormatError,
        match=r"tokenizer\.json: a 'Unigram' model, which HuggingFace's tokenizers read; bpeflow reads byte-level",
    ):
        formats.load(tmp_path)


def test_ranks_are_recognised_under_any_name(tmp_path: Path) -> None:
    """Llama 3's ranks are called tokenizer.model."""
    spec = TokenizerSpec(Vocab.build([], ["<s>"]), "llama3")
    ranks, sidecar = formats.save(spec, tmp_path / "x.tiktoken", "tiktoken")
    ranks.rename(tmp_path / "tokenizer.model")
    sidecar.rename(tmp_path / "tokenizer.model.json")
    assert formats.load(tmp_path / "tokenizer.model") == spec


def test_the_most_complete_file_in_a_folder_is_read(tmp_path: Path) -> None:
    """Published folders have vocab.json and merges.txt beside a tokenizer.json, which also has the pattern."""
    spec = TokenizerSpec(Vocab.build([], ["<s>"]), "llama3")
    formats.write(TokenizerSpec(spec.vocab, "o200k"), tmp_path, "gpt2")
    formats.write(spec, tmp_path, "huggingface")
    assert formats.load(tmp_path).pattern == "o200k"
    (tmp_path / "bpeflow.json").unlink()
    assert formats.load(tmp_path).pattern == "llama3"
    (tmp_path / "tokenizer.json").unlink()
    assert formats.load(tmp_path).pattern == "gpt2"


def test_a_json_file_is_judged_by_its_content_and_not_by_the_files_beside_it(tmp_path: Path) -> None:
    formats.save(TokenizerSpec(Vocab.build([], ["<s>"])), tmp_path, "gpt2")
    (tmp_path / "vocab.json").rename(tmp_path / "my-vocab.json")
    with pytest.raises(FormatError, match=r'my-vocab\.json: no "model" in it, .* give their folder'):
        formats.load(tmp_path / "my-vocab.json")


def test_a_folder_with_ranks_under_another_name_is_read(tmp_path: Path) -> None:
    spec = TokenizerSpec(Vocab.build([], ["<s>"]), "llama3")
    formats.save(spec, tmp_path / "mine.tiktoken", "tiktoken")
    assert formats.load(tmp_path) == spec


def test_output_formats_are_written_for_each_size(tmp_path: Path) -> None:
    names = ["huggingface", "tiktoken"]
    run = train(tmp_path, vocab_size=None, vocab_sizes=[280, 300], output={"formats": names})
    report = json.loads((run / "run.json").read_text(encoding="utf-8"))
    for folder, size in ((run, 300), (run / "vocab_280", 280)):
        for known in formats.FORMATS:
            assert len(known.load(folder / known.file).vocab) == size
            assert {(folder / file).relative_to(run).as_posix() for file in known.files} <= set(report["files"])


def test_a_run_removes_formats_of_an_earlier_run(tmp_path: Path) -> None:
    run = train(tmp_path, output={"formats": "huggingface"})
    assert (run / "tokenizer.json").exists()
    train(tmp_path, overwrite=True)
    assert not (run / "tokenizer.json").exists()


def test_a_pattern_that_a_format_cannot_hold_is_refused_before_any_work(tmp_path: Path) -> None:
    settings = {"pattern": r"\p{N}{1,3}+|\S+|\s+", "output": {"formats": ["huggingface"]}}
    with pytest.raises(ConfigError, match=r"^output\.formats: huggingface: .*pattern .* Oniguruma"):
        train(tmp_path, **settings)
    assert not (tmp_path / "run").exists()


def test_a_format_that_cannot_hold_the_learned_merges_is_skipped_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    output = {"formats": ["huggingface", "tiktoken"]}
    with caplog.at_level(logging.WARNING):
        run = train(tmp_path, special_tokens=["Ġthe"], separator="<|endoftext|>", output=output)
    assert "output.formats: huggingface was not written" in caplog.text
    assert (run / "tokenizer.tiktoken").exists()
    assert not (run / "tokenizer.json").exists()


def test_a_special_token_gets_the_id_after_all_others_or_a_free_one(tmp_path: Path) -> None:
    Tokenizer({byte: bytes([byte]) for byte in range(256)}, [], {"<a>": 300}).save(tmp_path / "gap.json")
    command = ["convert", str(tmp_path / "gap.json"), str(tmp_path / "b.json"), "--overwrite", "--special_tokens"]
    assert main([*command, "<a>", "<b>"]) == 0
    assert formats.load(tmp_path / "b.json").vocab.special_tokens == {"<a>": 300, "<b>": 301}
    assert main([*command, "<b>=256"]) == 0
    assert formats.load(tmp_path / "b.json").vocab.special_tokens == {"<a>": 300, "<b>": 256}


def test_unknown_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"output\.formats"):
        train(tmp_path, output={"formats": ["sentencepiece"]})
