"""Flags: their values are text, their errors name the nearest flag or setting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bpeflow.cli.main import COMMANDS, main


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("low lower lowest newest widest|the lower the better" * 20, encoding="utf-8")
    return path


def train(corpus: Path, *flags: str) -> dict[str, Any]:
    """Train and return the settings in the report."""
    out = corpus.parent / "run"
    flags = flags if "--vocab_size" in flags else (*flags, "--vocab_size", "280")
    assert main(["train", "--input", str(corpus), "--out_dir", str(out), "--quiet", *flags]) == 0
    return settings_of(out)


def settings_of(out: Path) -> dict[str, Any]:
    return json.loads((out / "run.json").read_text(encoding="utf-8"))["settings"]  # type: ignore[no-any-return]


def test_values_are_text_and_not_yaml(corpus: Path) -> None:
    settings = train(corpus, "--pattern", "[a: b]+|[^a]|a", "--special_tokens", "null", "12", "--separator", "~")
    assert settings["pattern"] == "[a: b]+|[^a]|a"
    assert settings["special_tokens"] == ["null", "12"]
    assert settings["separator"] == "~"


def test_rules_of_learning_have_flags(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--tie_break", "huggingface", "--min_frequency", "2", "--set", "max-token-length=3"]
    settings = train(corpus, *flags)
    assert [settings[name] for name in ("tie_break", "min_frequency", "max_token_length")] == ["huggingface", 2, 3]
    run, again = corpus.parent / "run", corpus.parent / "again"
    flags = ["--tie-break", "smallest_ids", "--special_tokens", "<a>", "--max_token_length", "4"]
    assert main(["merge", "--counts", str(run), "--out_dir", str(again), "--quiet", *flags]) == 0
    settings = settings_of(again)
    names = ("tie_break", "min_frequency", "max_token_length", "special_tokens")
    assert [settings[name] for name in names] == ["smallest_ids", 2, 4, ["<a>"]]
    flags = ["--min_frequency", "9", "--vocab_size", "270", "--backends", "python", "--json"]
    capsys.readouterr()
    assert main(["compare", "--counts", str(run), "--quiet", *flags]) == 0
    assert json.loads(capsys.readouterr().out)["settings"]["min_frequency"] == 9


def test_a_setting_that_is_on_by_default_takes_a_value(corpus: Path) -> None:
    assert train(corpus, "--superwords")["colon_rule"] is True
    assert train(corpus, "--superwords", "--overwrite", "--colon-rule", "false")["colon_rule"] is False


def test_no_special_tokens(corpus: Path) -> None:
    assert train(corpus, "--special_tokens")["special_tokens"] == []


def test_a_vocabulary_size_in_thousands(corpus: Path) -> None:
    assert train(corpus, "--vocab_size", "1k")["vocab_size"] == 1_000


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["--vocabsize", "3"], "unknown flag --vocabsize; did you mean '--vocab_size'?"),
        (["--vocab-sise=3"], "unknown flag --vocab_sise; did you mean '--vocab_size'?"),
        (["--output", "x"], "unknown flag --output: give it by --set output=VALUE, or in a config (usage: bpe"),
        (["encode", "--output=x"], "unknown flag --output: a setting of train; did you mean '--out'?"),
        (["--shard_tokens", "1m"], "unknown flag --shard_tokens: a setting of encode; did you"),
        (["--elephants"], "unknown flag --elephants (usage: bpeflow train --input PATH ... --vo"),
        (["-x"], "unknown flag -x (usage: bpeflow train"),
        (["encode", "--tokeniser", "x"], "unknown flag --tokeniser; did you mean '--tokenizer'?"),
        (["decode", "--out", "-"], "--out: standard output cannot be written to; name a file"),
        (["encode", "--verbose"], "unknown flag --verbose (usage: bpeflow encode"),
        (["--force"], "unknown flag --force (usage: bpeflow train"),
        (["--restar"], "unknown flag --restar (usage: bpeflow train"),
        (["--set", "overwrit=true"], "unknown setting overwrit (`bpeflow config` lists all settings)"),
        (["encode", "c.txt"], "unexpected argument 'c.txt' (usage: bpeflow encode --tokenizer PATH --input PATH"),
        (["evaluate", "ok", "-i", "f", "--tokenizer=g"], "unexpected argument 'ok' (usage: bpeflow evaluate --tok"),
        (["merge", "--config", "x", "ok"], "unexpected argument 'ok': --config takes one value (usage: bpeflow merge"),
        (
            ["encode", "--tokenizer", "a", "b", "-i", "f", "-o", "o"],
            "unexpected argument 'b': --tokenizer takes one value",
        ),
        (
            ["--vocab_size", "32k", "64k"],
            "unexpected argument '64k': --vocab_size takes one value (usage: bpeflow train",
        ),
        (
            ["show", "ok", "the", "fox"],
            "unexpected argument 'fox' (usage: bpeflow show TOKENIZER [\"TEXT\" | -] [flags])",
        ),
        (
            ["convert", "ok", "--special_tokens", "<s>", "o"],
            "missing: DST (usage: bpeflow convert SRC DST [flags])",
        ),
        (["merge", "ok"], "unexpected argument 'ok' (usage: bpeflow merge --counts PATH [flags])"),
        (["--input", "c", "--special_tokens", ""], "special_tokens: a special token must not be an empty string"),
        (["encode", "--out", "-"], "--out: standard output cannot be written to; name a file"),
        (["report", "ok", "-o", "x.pdf"], "--out: x.pdf does not end in .html, and the file is HTML"),
        (["show", "ok", "a", "--html", "p.png"], "--html: p.png does not end in .html, and the file is HTML"),
        (["encode"], "missing: --tokenizer, --out (usage: bpeflow encode"),
        (
            ["merge", "--counts", "x", "--pattern", "x"],
            "unknown flag --pattern: it concerns counting, which is not repeated: the counts have their own; train "
            "again for another value (usage: bpeflow merge",
        ),
        (
            ["merge", "--output", "x"],
            "unknown flag --output: give it by --set output=VALUE, or in a config (usage: bpe",
        ),
        (["encode", "--sources", "x"], "unknown flag --sources: give it in a config, by --config (usage: bpeflow enc"),
        (["evaluate", "--engine", "ray"], "unknown flag --engine: a setting of train (usage: bpeflow evaluate"),
        (["merge", "--counts", "none"], "no counts at none: give a run folder with counts, or counts as .npz"),
        (["merge", "--counts", "."], "no counts at counts.npz: give a run folder with counts, or counts as"),
        (["merge", "--vocab_size", "300"], "missing: --counts, or --out_dir with --resume"),
        (["inspect", "x", "--input"], "--input: needs a value"),
        (["--pattern"], "--pattern: needs a value (--flag=VALUE if that begins with a dash)"),
        (["--set", "vocab_sise=3"], "unknown setting vocab_sise (did you mean vocab_size?)"),
        (["--set", "interval=3"], "unknown setting interval (did you mean monitor.interval?)"),
        (["--set", "monitr.interval=3"], "unknown setting monitr.interval (did you mean monitor.interval?)"),
        (
            ["--set", "sources.0.weight=3"],
            "unknown setting sources.0.weight (items of a list cannot be set singly: give the whole list, as "
            "sources=[…])",
        ),
        (["--set", "elephants.x=3"], "unknown setting elephants.x (`bpeflow config` lists all settings)"),
        (
            ["--set", "special_tokens=[a"],
            "--set: special_tokens: '[a' is not valid YAML (while parsing a flow sequence in line 1, column 1",
        ),
        (["--set", "pattern=a: b"], "pattern: need a name, a regular expression, or a list of them, found {'a': 'b'}"),
        (["--set", "num_counter=many"], "found 'many' (counters (threads or processes); for example 8)"),
        (["--set", "special_tokens=3.5"], 'found 3.5 (strings that are never split, merged or counted; for example ["'),
        (["--set", "vocab_size=32q"], "vocab_size: need a whole number such as 32000, 32k or 1m, found '32q'"),
        (["--set", "sources=[{paths: []}]"], "sources.0.paths: must not be empty"),
        (["--thin_rare", "below=5"], "thin_rare: need below=N,keep=FRACTION, such as below=5,keep=0.1, found"),
        (["--memory_limit", "1kb"], "memory_limit: must be at least 16mb, found '1kb'"),
        (["--vocab_size", "2k"], "--vocab_size is given twice: remove one"),
        (["--out_dir", "x", "-o=y"], "-o is given twice: remove one"),
        (["diff", "x"], "missing: B (usage: bpeflow diff A B [flags])"),
        (
            ["inspect", "x", "--json", "v.json"],
            "unexpected argument 'v.json': --json takes no value (usage: ",
        ),
        (["show", "x", "a", "--ids", "--json"], "--ids and --json: give one of them"),
        (["show", "x", "a", "--explain", "--json"], "--json and --explain: give one of them"),
        (["evaluate", "--tokenizer", "x", "-i", "x", "--baseline=y", "--baseline=y"], "--baseline is given twice"),
        (["--tie_break", "none"], "'greatest_bytes', 'smallest_ids' or 'huggingface', found 'none'"),
        (["--input_format", "csv"], "'auto', 'text', 'jsonl' or 'parquet', found 'csv'"),
    ],
    ids=str,
)
def test_an_error_is_one_line_with_the_remedy(
    argv: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sized = [] if {"vocab_size=32q", "64k"} & {*argv} else ["--vocab_size=300"]
    assert main(argv if argv[0] in COMMANDS else ["--input", "x", *sized, *argv]) == 2
    out, err = capsys.readouterr()
    assert complaint in err
    assert (out, len(err.splitlines())) == ("", 1)
