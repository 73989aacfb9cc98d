"""Messages name settings as the user gave them: as flags, or in a config."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from bpeflow.cli.main import load_command, main
from bpeflow.cli.wording import SETTING, Wording

CONFIG = "input: a.txt\nvocab_size: 300\nout_dir: run\nbackend: cuda\npattern: gtp2\nmonitor: {interval: 0}\n"


def wording(*given: str, config: Path | None = None, command: str = "train") -> Wording:
    """The wording of a command with flags for these settings."""
    parser, _ = load_command(command)
    return Wording(parser.settings, Namespace(config=config, **{SETTING + key: "x" for key in given}))


@pytest.mark.parametrize(
    ("message", "flags"),
    [
        ("threads: must be 3, found 'a'", "--threads: must be 3, found 'a'"),
        ("special_tokens.0: must not be empty", "--special_tokens: must not be empty"),
        ("unknown backend 'cuda'; there are: c", "--backend: unknown backend 'cuda'; there are: c"),
        ("use bad_records='skip' to leave out", "use --bad_records skip to leave out"),
        ("(or backend='auto')", "(or --backend auto)"),
        ("x; max_token_length=128 leaves", "x; --max_token_length 128 leaves"),
        ("add superwords=True", "add --superwords"),
        ("use another out_dir, or overwrite=True", "use another --out_dir, or --overwrite"),
        ("give special_tokens=['<s>', 'e']; x", "give --special_tokens '<s>' e; x"),
        ("(thin_rare={'below': 5, 'keep': 0.1} keeps", "(--thin_rare below=5,keep=0.1 keeps"),
        ("or use engine='local'", "or use --engine local"),
        ("give any_tokenizer=True, or known='gpt2'.", "give --any_tokenizer, or --known gpt2."),
        ("set text_field to the field", "set --text_field to the field"),
        # Names that are the user's own, values, changes, and other words:
        ("vocab_size: 300 → 400, num_counter: null → 3", "vocab_size: 300 → 400, num_counter: null → 3"),
        (
            "runs/out_dir/text_field.txt: 'vocab_size' \"out_dir\"",
            "runs/out_dir/text_field.txt: 'vocab_size' \"out_dir\"",
        ),
        ("(PYTHONFAULTHANDLER=1 in the environment)", "(PYTHONFAULTHANDLER=1 in the environment)"),
        ("runs/resume=True/x vocab_size=16000.txt a=[a-z]", "runs/resume=True/x vocab_size=16000.txt a=[a-z]"),
        ("as in special_tokens['x']", "as in special_tokens['x']"),
        ("the input is a pattern: unmatched", "the input is a pattern: unmatched"),
        ("threads.txt: must exist", "threads.txt: must exist"),
    ],
)
def test_settings_are_named_as_flags(message: str, flags: str) -> None:
    assert wording("threads", "special_tokens", "backend")(message) == flags


def test_settings_of_a_config_are_named_after_it(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(CONFIG, encoding="utf-8")
    words = wording("threads", config=config)
    assert words("unknown backend 'cuda'") == f"{config}: unknown backend 'cuda'"
    assert words("monitor.interval: must be") == f"{config}: monitor.interval: must be"
    assert words("threads: must be") == "--threads: must be"
    assert words("use bad_records='skip', special_tokens=['<s>'] or resume=True") == (
        "use bad_records: skip, special_tokens: ['<s>'] or --resume"
    )
    for message in ("min_frequency: must be", "engine.kind: must be", "vocab_size is missing"):
        assert words(message) == message


def test_a_command_names_the_place_of_a_wrong_setting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_bytes(b"a\xff" + b"lower " * 99)
    Path("c.yaml").write_text(CONFIG.replace("monitor", "# "), encoding="utf-8")

    def error(*arguments: str) -> str:
        assert main(arguments) == 2
        return capsys.readouterr().err.splitlines()[-1]

    assert error("--config", "c.yaml").startswith("bpeflow: c.yaml: unknown backend 'cuda'")
    assert error("--config", "c.yaml", "--backend", "c").startswith("bpeflow: c.yaml: unknown pattern 'gtp2'")
    assert error("--config", "c.yaml", "--backend", "x").startswith("bpeflow: --backend: unknown backend 'x'")
    plain = ("--input", "a.txt", "--vocab_size", "300", "--out_dir", "run")
    assert "use --invalid_utf8 replace to put U+FFFD there, or --invalid_utf8 skip to" in error(*plain)
    assert error(*plain, "--set", "monitor.interval=0").startswith("bpeflow: monitor.interval: must be")
    assert error("--config", "none.yaml").endswith(f"none.yaml: No such file or directory in {tmp_path}")


def test_warnings_are_worded_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text(" " * 999, encoding="utf-8")
    flags = ("--vocab_size", "300", "--out_dir", str(tmp_path / "run"))
    assert main(("--input", str(tmp_path / "a.txt"), *flags)) == 0
    assert "; --max_token_length 128 leaves their ids to shorter ones" in capsys.readouterr().err
