"""The commands encode, decode and evaluate: their flags, their output, and their files."""

from __future__ import annotations

import gzip
import json
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from screen import screen_of
from small_corpus import write_text
from small_tokenizer import EOT, save_tokenizer

import bpeflow
from bpeflow.cli.main import main
from bpeflow.dataset.token_file import load_tokens
from bpeflow.tokenizer.tokenizer import Tokenizer

TEXT = f"low lower lowest newest widest{EOT}the lower the better, they said{EOT}" * 20


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return save_tokenizer(tmp_path / "run")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_text(tmp_path, TEXT)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder / "train.bin"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_corpus_goes_there_and_back(run: Path, corpus: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["encode", "--tokenizer", str(run), "--input", str(corpus), "--out", str(out), "--index"]) == 0
    shown, err = capsys.readouterr()
    assert names(out.parent) == ["train.bin", "train.bin.idx", "train.bin.json"]
    tokens = bpeflow.load_tokens(out)
    assert re.search(rf"encoded  1\.7 kB in \d\.\d s, .*B/s, {len(tokens):,} tokens \(uint16\) in 40 documents", shown)
    assert f"written  {out}, {out}.json, {out}.idx" in shown
    assert "encoding: 1.7 kB of 1.7 kB" in err
    assert tokens.tolist() == Tokenizer.load(run).encode(TEXT)
    text = out.parent / "text.txt"
    assert main(["decode", "--tokenizer", str(run), "--input", str(out), "--out", str(text)]) == 0
    shown, err = capsys.readouterr()
    assert f"decoded  {len(tokens):,} tokens in" in shown
    assert "to 1.7 kB" in shown
    assert "decoding: " in err
    assert text.read_text(encoding="utf-8") == TEXT


def test_every_flag_of_encode_does_something(run: Path, tmp_path: Path, out: Path) -> None:
    corpus = tmp_path / "odd.txt"
    corpus.write_bytes(b"low||lowest" + EOT.encode() + b"||\xff")
    command = ["encode", "--tokenizer", str(run), "--input", str(corpus), "--out", str(out), "--quiet"]
    flags = ["--dtype=uint32", "--separator=||", "--end-token", EOT, "--special-tokens-as-text", "--invalid-utf8=skip"]
    assert main([*command, *flags, "--threads=2", "--chunk-size=1kb"]) == 0
    tokenizer = Tokenizer.load(run)
    end = tokenizer.special_tokens[EOT]
    tokens = bpeflow.load_tokens(out)
    assert tokens.tolist() == [*tokenizer.encode("low"), end, *tokenizer.encode_ordinary("lowest" + EOT), end]
    assert tokens.dtype == "uint32"
    assert main([*command, "--separator=", "--end-token=", "--invalid-utf8=replace"]) == 2
    assert main([*command, "--separator=", "--end-token=", "--invalid-utf8=replace", "--overwrite"]) == 0
    assert bpeflow.load_tokens(out).tolist() == tokenizer.encode(f"low||lowest{EOT}||\ufffd")


def test_shards_a_validation_split_and_formats(
    run: Path, tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus, tokenizer = tmp_path / "many.txt", Tokenizer.load(run)
    corpus.write_text("".join(f"low {number}{EOT}" for number in range(40)), encoding="utf-8")
    command = ["encode", "--tokenizer", str(run), "--input", str(corpus), "--out", str(out.with_name("train.bin"))]
    flags = ["--shard_tokens=100", "--val_fraction", "0.2", "--seed=3", "--format", "megatron"]
    assert main([*command, *flags]) == 0
    shown, _ = capsys.readouterr()
    train, val = (bpeflow.load_shards(out.with_name(f"{split}.bin")) for split in ("train", "val"))
    assert f"of these {sum(map(len, val)):,} tokens in " in shown
    assert "train_000000.bin … " in shown
    assert f"val_000000.idx ({3 * len([*train, *val])} files)" in shown
    texts = "".join(tokenizer.decode(ids) for ids in (*train, *val)).split(EOT)
    assert sorted(texts[:-1]) == sorted(f"low {number}" for number in range(40))
    assert main([*command, *flags]) == 2
    assert "train_000000.bin: already exists; write to another file, or give" in capsys.readouterr().err
    flags[flags.index("--seed=3")] = "--seed=4"
    assert main([*command, *flags, "--overwrite", "--quiet"]) == 0
    text = out.with_name("text.txt")
    assert main(["decode", "--tokenizer", str(run), "--input", str(out.with_name("val.bin")), "--out", str(text)]) == 0
    other = bpeflow.load_shards(out.with_name("val.bin"))
    assert text.read_text(encoding="utf-8") == "".join(map(tokenizer.decode, other))
    assert [ids.tolist() for ids in other] != [ids.tolist() for ids in val]


def test_quiet_prints_nothing(run: Path, corpus: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = ["--tokenizer", str(run), "--quiet"]
    assert main(["encode", *tokenizer, "--input", str(corpus), "--out", str(out)]) == 0
    assert main(["decode", *tokenizer, "--input", str(out), "--out", str(out.parent / "text.txt")]) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--input", "no-such-file.txt"], "no-such-file.txt"),
        (["--tokenizer", "no-such-run"], "no-such-run"),
        (["--dtype", "uint8"], "found 'uint8'"),
        (["--end_token", "<end>"], "end_token: '<end>' is not a special token"),
        (["--invalid_utf8", "ignore"], "'skip', found 'ignore'"),
        (["--bad_records", "ignore"], "'skip', found 'ignore'"),
        (["--separator", "||"], "give end_token"),
        (["--shard_tokens", "many"], "need a whole number such as 32000, 32k or 1m, found 'many'"),
        (
            ["--val_fraction", "half"],
            "val_fraction: must be a valid number, found 'half'",
        ),
        (["--format", "csv"], "format: must be 'bin', 'npy' or 'megatron', found 'csv'"),
        (["--threads", "0"], "num_threads: must be at least 1, found '0'"),
        (["--chunk_size", "8 elephants"], "chunk_size: need a size such as 8mb, not of elephants"),
        (["--chunk_size", "0"], "chunk_size: must be at least 1, found '0'"),
        (["--speed", "11"], "--speed"),
    ],
    ids=str,
)
def test_an_error_is_one_clear_line_and_status_2(
    run: Path, corpus: Path, out: Path, capsys: pytest.CaptureFixture[str], flags: list[str], complaint: str
) -> None:
    try:
        tokenizer = [] if "--tokenizer" in flags else ["--tokenizer", str(run)]
        status = main(["encode", *tokenizer, "--input", str(corpus), "--out", str(out), *flags])
    except SystemExit as exit_:  # from argparse
        status = exit_.code  # type: ignore[assignment]
    _, err = capsys.readouterr()
    assert status == 2
    assert complaint in err
    assert len([line for line in err.splitlines() if not line.startswith("usage")]) == 1
    assert names(out.parent) == []


def test_broken_utf8_is_status_2_with_its_position(
    run: Path, corpus: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus.write_bytes(b"abc\xff")
    assert main(["encode", "--tokenizer", str(run), "--input", str(corpus), "--out", str(out)]) == 2
    assert "corpus.txt is not UTF-8 at byte 3" in capsys.readouterr().err
    assert names(out.parent) == []


def test_what_cannot_be_decoded_is_status_2(
    run: Path, corpus: Path, out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = ["--out", str(tmp_path / "text.txt"), "--quiet"]
    assert main(["encode", "--tokenizer", str(run), "--input", str(corpus), "--out", str(out), "--quiet"]) == 0
    other = save_tokenizer(tmp_path / "other", merges=3)
    assert main(["decode", "--tokenizer", str(other), "--input", str(out), *text]) == 2
    assert "was made by another tokenizer" in capsys.readouterr().err
    assert main(["decode", "--tokenizer", str(other), "--input", str(out), *text, "--any_tokenizer"]) == 2
    assert "unknown id 260 at index" in capsys.readouterr().err
    out.with_name("train.bin.json").unlink()
    assert main(["decode", "--tokenizer", str(run), "--input", str(out), *text]) == 2
    assert "not a token file, or without train.bin.json" in capsys.readouterr().err
    assert not (tmp_path / "text.txt").exists()


# ---- failures ----


def _no_room_for_files() -> None:
    """Simulate a full disk: the kernel refuses to write beyond 50,000 bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))


def bpeflow_command(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bpeflow", *arguments, "--quiet"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)


@pytest.mark.slow
@pytest.mark.parametrize("documents", [1, 20_000], ids=["the tokens are too many", "the index is too long"])
def test_a_full_disk_is_one_line_and_leaves_nothing(run: Path, tmp_path: Path, out: Path, documents: int) -> None:
    corpus = tmp_path / "big.txt"
    corpus.write_text("0123456789" * 10_000 if documents == 1 else EOT * documents, encoding="utf-8")
    paths = ["--tokenizer", str(run), "--input", str(corpus), "--out", str(out), "--index"]
    done = bpeflow_command("encode", *paths, preexec_fn=_no_room_for_files)
    name = out if documents == 1 else f"{out}.idx"
    assert done.returncode == 1
    assert done.stderr.startswith(f"bpeflow: {name}: File too large; a limit of file sizes")
    assert done.stderr.count("\n") == 1
    assert names(out.parent) == []


@pytest.mark.slow
def test_a_full_disk_leaves_no_half_text(run: Path, tmp_path: Path, out: Path) -> None:
    corpus = tmp_path / "big.txt"
    corpus.write_text("low lower lowest\n" * 10_000, encoding="utf-8")
    tokenizer = ["--tokenizer", str(run)]
    assert bpeflow_command("encode", *tokenizer, "--input", str(corpus), "--out", str(out)).returncode == 0
    text = tmp_path / "text" / "text.txt"
    text.parent.mkdir()
    paths = ["--input", str(out), "--out", str(text)]
    done = bpeflow_command("decode", *tokenizer, *paths, preexec_fn=_no_room_for_files)
    assert done.returncode == 1
    assert done.stderr.startswith(f"bpeflow: {text}: File too large; a limit of file sizes")
    assert done.stderr.count("\n") == 1
    assert names(text.parent) == []


def test_missing_folders_are_created(run: Path, corpus: Path, tmp_path: Path) -> None:
    ids, text, page = (tmp_path / name / "inner" / name for name in ("train.bin", "text.txt", "page.html"))
    tokenizer = ["--tokenizer", str(run), "--quiet"]
    assert main(["encode", *tokenizer, "--input", str(corpus), "--out", str(ids)]) == 0
    assert main(["decode", *tokenizer, "--input", str(ids), "--out", str(text)]) == 0
    assert main(["show", str(run), "low", "--html", str(page)]) == 0
    assert ids.exists() and text.exists() and page.exists()


def test_decoding_replaces_a_file_only_if_asked(
    run: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids, text = tmp_path / "ids.bin", tmp_path / "mine.txt"
    assert main(["encode", "--tokenizer", str(run), "--input", str(corpus), "--out", str(ids), "--quiet"]) == 0
    text.write_text("mine")
    decode = ["decode", "--tokenizer", str(run), "--input", str(ids), "--out", str(text), "--quiet"]
    assert main(decode) == 2
    assert f"{text}: already exists; name another file, or give --overwrite" in capsys.readouterr().err
    assert text.read_text() == "mine"
    assert main([*decode, "--overwrite"]) == 0
    assert text.read_text(encoding="utf-8") == corpus.read_text(encoding="utf-8")


# ---- evaluate ----


def test_tokenizers_and_corpora_are_crossed(
    run: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = save_tokenizer(tmp_path / "fewer", merges=2)
    second = tmp_path / "second.txt"
    second.write_text("the lowest", encoding="utf-8")
    flags = ["--tokenizer", str(run), "--tokenizer", str(other), "--input", str(corpus), str(second)]
    assert main(["evaluate", *flags]) == 0
    shown, err = capsys.readouterr()
    assert [line.split()[:2] for line in shown.splitlines()][3:5] == [["second.txt", "run"], ["second.txt", "fewer"]]
    assert "counting: 1.7 kB of 1.7 kB" in err
    assert main(["evaluate", *flags, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert [row["tokens"] for row in figures["evaluations"]][2:4] == [4, 8]
    assert [row["corpus"] for row in figures["evaluations"]][1:5] == ["corpus.txt", "second.txt", "second.txt", None]
    assert [row["name"] for row in figures["tokenizers"]] == ["run", "fewer"]
    assert figures["baseline"] == "run"
    assert main(["evaluate", *flags, "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_evaluate_takes_records_a_baseline_and_a_size(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = save_tokenizer(tmp_path / "fewer", merges=2)
    corpus = tmp_path / "corpus.gz"
    corpus.write_bytes(gzip.compress(b'{"content": "the lowest"}\n'))
    flags = ["--tokenizer", str(run), "--baseline", str(other), "--input", str(corpus)]
    records = ["--input_format", "jsonl", "--text_field", "content", "--invalid_utf8", "error", "--for_size", "12gb"]
    assert main(["evaluate", *flags, *records]) == 0
    assert "12.0 GB take" in capsys.readouterr().out
    assert main(["evaluate", *flags, *records, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert [(row["tokens"], row["ratio"]) for row in figures["evaluations"]] == [(4, 2), (8, 1)]
    assert all(row["seconds_for_size"] > 0 for row in figures["evaluations"])


def test_help_lists_all_flags(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("encode", "decode", "evaluate"):
        with pytest.raises(SystemExit) as caught:
            main([command, "--help"])
        assert caught.value.code == 0
    text = capsys.readouterr().out
    flags = "--tokenizer --input --out --dtype --separator --end_token --special_tokens_as_text --invalid_utf8 --index"
    for flag in f"{flags} --bad_records --exclude --threads --chunk_size --quiet --any_tokenizer --json".split():
        assert flag in text
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.slow
def test_a_terminal_gets_a_progress_bar(run: Path, corpus: Path, out: Path) -> None:
    paths = ["--tokenizer", str(run), "--input", str(corpus), "--out", str(out)]
    screen = screen_of("encode", *paths)
    assert re.search(rb"encoding.*100%.*1\.7 kB of 1\.7 kB", screen)


def test_the_corpus_of_a_config_can_be_encoded_and_evaluated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sources with fields of their own, as in training. `--input` replaces them, and other flags override settings."""
    (tmp_path / "a.jsonl").write_text('{"body": "low"}\n{"body": 1}\n', encoding="utf-8")
    (tmp_path / "b.txt").write_text("lower", encoding="utf-8")
    config = tmp_path / "mix.yaml"
    sources = [{"name": "a", "paths": f"{tmp_path}/a.jsonl", "text_field": "body"}]
    config.write_text(
        json.dumps({"input": [f"{tmp_path}/b.txt"], "sources": sources, "bad_records": "skip", "vocab_size": 300})
    )
    tokenizer, out = save_tokenizer(tmp_path / "tokenizer"), tmp_path / "out.bin"
    flags = ["--tokenizer", str(tokenizer), "--config", str(config), "--quiet"]
    assert main(["encode", *flags, "--out", str(out)]) == 0
    assert Tokenizer.load(tokenizer).decode(load_tokens(out).tolist()) == f"lower{EOT}low{EOT}"
    assert main(["encode", *flags, "--out", str(out), "--input", str(tmp_path / "b.txt"), "--overwrite"]) == 0
    assert Tokenizer.load(tokenizer).decode(load_tokens(out).tolist()) == "lower"
    assert main(["encode", *flags, "--out", str(out), "--bad_records", "error", "--overwrite"]) == 2
    assert "use --bad_records skip" in capsys.readouterr().err
    assert main(["evaluate", *flags]) == 0
    assert "all together" in capsys.readouterr().out
    config.write_text("vocab_size: 300\n")
    assert main(["encode", *flags, "--out", str(out)]) == 2
    assert "--input" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["encode", "evaluate", "inspect", "diff"])
def test_unknown_settings_of_a_config_are_refused(
    run: Path, corpus: Path, out: Path, tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"input: {corpus}\nseperator: x\nvocab_sze: 300\n")
    tokenizers = ["--tokenizer", run] if command in ("encode", "evaluate") else [run] * (1 + (command == "diff"))
    flags = [command, *map(str, tokenizers), "--config", str(config)]
    assert main([*flags, "--out", str(out)] if command == "encode" else flags) == 2
    err = capsys.readouterr().err
    assert f"{config}: unknown setting seperator (did you mean separator?)" in err
    assert f"{config}: unknown setting vocab_sze (did you mean vocab_size?)" in err
    config.write_text(f"input: {corpus}\nquiet: true\nindex: true\n")  # a flag of the command, not a setting
    assert main([*flags, "--out", str(out)] if command == "encode" else flags) == 2
    assert f"{config}: unknown setting quiet (`bpeflow config` lists all settings)" in capsys.readouterr().err
    assert not out.exists()


def test_a_config_may_have_the_settings_of_encode_and_train(
    run: Path, corpus: Path, out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that only train has are ignored, and, with a message, those of a run (`overwrite`); the rest apply."""
    config = tmp_path / "config.yaml"
    flags = ["encode", "--tokenizer", str(run), "--out", str(out)]
    config.write_text(
        f"input: {corpus}\nindex: true\ndtype: uint32\nvocab_size: 300\nmonitor.interval: 2\noverwrite: true\n"
    )
    assert main([*flags, "--config", str(config)]) == 0
    assert (
        f"INFO: {config}: taken for settings of train, and ignored; as flags they take effect: overwrite\n"
        in capsys.readouterr().err
    )
    assert load_tokens(out).dtype == "uint32"
    assert out.with_name(f"{out.name}.idx").exists()
    assert main([*flags, "--config", str(config)]) == 2
    config.write_text(f"input: {corpus}\ntokenizer: {run}\npattern: gpt2\nspecial_tokens: [<s>]\nvocab_size: 300\n")
    capsys.readouterr()
    assert main([*flags, "--config", str(config), "--overwrite"]) == 0
    assert (
        "taken for settings of train, and ignored; as flags they take effect: pattern, special_tokens\n"
        in capsys.readouterr().err
    )


def test_a_config_may_name_the_tokenizer_and_what_to_write(
    run: Path, corpus: Path, out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """So one config serves all commands, whose flags go first."""
    config, other = tmp_path / "config.yaml", save_tokenizer(tmp_path / "other")
    new = f"input: {corpus}\nvocab_size: 300\nout_dir: {tmp_path / 'new'}\n"
    config.write_text(f"{new}tokenizer: {run}\nout: {out}\nbaseline: {other}\n")
    assert main(["encode", "--config", str(config)]) == 0
    assert main(["encode", "--config", str(config), "--out", str(tmp_path / "other.bin")]) == 0
    assert (tmp_path / "other.bin").read_bytes() == out.read_bytes()
    for tokenizers in (str(run), f"[{run}, {other}]"):
        config.write_text(f"input: {corpus}\ntokenizer: {tokenizers}\nbaseline: {other}\n")
        capsys.readouterr()
        assert main(["evaluate", "--config", str(config)]) == 0
        assert "times the bytes per token of other" in capsys.readouterr().out
    config.write_text(f"{new}tokenizer: {run}\n")
    assert main(["--config", str(config), "--quiet"]) == 0
    for text, message in {
        f"{new}tokenizer: {run}\n": "missing: --out (usage: bpeflow encode",
        f"{new}tokenizer: [a, b]\nout: x\n": "unexpected argument 'b': --tokenizer takes one value (usage: bpeflow ",
    }.items():
        config.write_text(text)
        assert main(["encode", "--config", str(config)]) == 2
        assert message in capsys.readouterr().err


@pytest.mark.parametrize("command", ["train", "evaluate", "inspect", "diff"])
def test_other_commands_ignore_the_settings_of_encode(
    run: Path, corpus: Path, tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """So one config serves all commands."""
    config, out_dir = tmp_path / "config.yaml", tmp_path / "new"
    config.write_text(f"input: {corpus}\nvocab_size: 300\nval_fraction: 0.1\nshard_tokens: 1m\nend_token: x\n")
    flags = {
        "train": ["--out_dir", out_dir], "evaluate": ["--tokenizer", run], "inspect": [run],
        "diff": [run, save_tokenizer(tmp_path / "other")],
    }  # fmt: skip
    assert main([command, *map(str, flags[command]), "--config", str(config)]) == 0
    line = f"INFO: {config}: settings of other commands are ignored: val_fraction, shard_tokens, end_token\n"
    assert (line in capsys.readouterr().err) == (command == "train")
    if command == "train":
        assert main([command, *map(str, flags[command]), "--config", str(config), "--set", "shard_tokens=5"]) == 2
        assert "unknown setting shard_tokens (a setting of encode)" in capsys.readouterr().err
