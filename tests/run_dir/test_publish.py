"""Results replace those of an earlier run when all of them are complete, and not before, whatever happens."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest
from distinct_words import write_corpus

import bpeflow
from bpeflow.cli.main import main
from bpeflow.errors import ResumeError
from bpeflow.formats import any_format as formats
from bpeflow.run_dir import layout as layout
from bpeflow.run_dir import run_dir as run_dir
from bpeflow.run_dir.run_files import SCHEMA_VERSION

EARLIER = {"vocab_sizes": [270, 280], "output": {"formats": ["huggingface"]}}
NEW = {"vocab_sizes": [280, 300], "overwrite": True}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus")


@pytest.fixture
def out(corpus: Path, tmp_path: Path) -> Path:
    """Return a folder with the results of an earlier run."""
    bpeflow.train(settings_of(corpus / "a", tmp_path / "run", **EARLIER))
    return tmp_path / "run"


def settings_of(corpus: Path, out: Path, **options: object) -> dict[str, object]:
    return {"input": str(corpus), "out_dir": str(out), "backend": "python", **options}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def merge(out: Path, *flags: str) -> int:
    """Learn again over the results in a folder."""
    folder = out if out.is_dir() else out.parent
    arguments = ["--counts", str(out), "--out_dir", str(folder), "--overwrite", "--set", "vocab_sizes=[280, 300]"]
    return main(["merge", *arguments, *flags])


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("superwords", [{}, {"superwords": True, "transition_size": 275}], ids=["", "superwords"])
@pytest.mark.parametrize("merge", [False, True], ids=["training", "merge"])
def test_a_run_that_is_killed_at_any_step_leaves_the_earlier_results_or_its_own(
    corpus: Path, tmp_path: Path, merge: bool, superwords: dict[str, object]
) -> None:
    script = str(Path(__file__).parents[1] / "support" / "killed_over_earlier.py")
    earlier = settings_of(corpus if merge else corpus / "a", tmp_path, num_counter=1, **EARLIER, **superwords)
    settings = {"backend": "python", **NEW}
    if not merge:
        more = {**superwords, "transition_size": 285} if superwords else {}
        settings = settings_of(corpus, tmp_path, num_counter=1, **NEW, **more)
    work = {"folder": str(tmp_path), "merge": merge, "seed": random.randrange(2**32)}
    done = subprocess.run(
        [sys.executable, script, *map(json.dumps, (work, earlier, settings))],
        capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, f"seed {work['seed']}: {done.stdout}{done.stderr[-3000:]}"
    outcome = json.loads(done.stdout)
    assert outcome["steps"] > 25
    assert outcome["published"] > 0, outcome


def no_room(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "a file")


def fail_in_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the disk become full when the first of two vocabularies is written."""
    write, calls = formats.write, []

    def fail(*arguments: object) -> list[Path]:
        calls.append(arguments)
        return write(*arguments) if len(calls) == 1 else no_room()  # type: ignore[arg-type, return-value]

    monkeypatch.setattr(run_dir.formats, "write", fail)


FAILURES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "while learning": lambda patch: patch.setattr("bpeflow.training.train.learn_with_settings", no_room),
    "while vocabularies are written": fail_in_the_second,
    "while the report is written": lambda patch: patch.setattr(run_dir.RunDir, "finish", no_room),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failed_training_leaves_the_earlier_results_and_its_own_counts(
    corpus: Path, out: Path, failure: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = contents(out)
    with monkeypatch.context() as patch:
        FAILURES[failure](patch)
        with pytest.raises(OSError, match="No space left"):
            bpeflow.train(settings_of(corpus, out, **NEW))
    after = contents(out)
    assert {name.removeprefix("unfinished/") for name in after if name not in before} == {
        "counts.npz", "run.json", "settings.json",
    }  # fmt: skip
    assert {name: after[name] for name in before} == before
    assert bpeflow.train(settings_of(corpus, out, **NEW, resume=True)).report.resumed == "counts.npz"
    bpeflow.train(settings_of(corpus, tmp_path / "unbroken", **NEW))
    expected = contents(tmp_path / "unbroken")
    assert {name: data for name, data in contents(out).items() if name != "run.json"} == {
        name: data for name, data in expected.items() if name != "run.json"
    }


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failed_merge_leaves_everything_as_it_was(out: Path, failure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(out)
    with monkeypatch.context() as patch:
        FAILURES[failure](patch)
        assert merge(out) == 1
    assert contents(out) == before
    assert not (out / "unfinished").exists()
    assert merge(out) == 0
    assert json.loads((out / "run.json").read_text(encoding="utf-8"))["files"][0] == "counts.npz"
    assert not (out / "vocab_270").exists()
    assert (out / "counts.npz").read_bytes() == before["counts.npz"]


def test_a_run_that_is_interrupted_while_publishing_completes_that(
    corpus: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(out)
    with monkeypatch.context() as patch:

        def interrupt(files: Mapping[Path, Path], stale: Iterable[Path]) -> None:
            first, *_ = files.items()
            patch.undo()
            run_dir.publish(dict([first]), stale)
            raise KeyboardInterrupt

        patch.setattr(run_dir, "publish", interrupt)
        with pytest.raises(KeyboardInterrupt):
            bpeflow.train(settings_of(corpus, out, **NEW))
    assert "vocab_280/vocab.json" in contents(out)
    assert not {"vocab_270/vocab.json", "tokenizer.json"} & {*contents(out)}
    assert contents(out)["counts.npz"] != before["counts.npz"]
    assert not (out / "unfinished").exists()


def test_merge_first_publishes_the_results_of_a_killed_run(
    corpus: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(run_dir, "publish_results", no_room)
        with pytest.raises(OSError, match="No space left"):
            bpeflow.train(settings_of(corpus, out, **NEW))
    assert (out / "unfinished" / layout.DONE_FILE).exists()
    assert merge(out) == 0
    assert bpeflow.train(settings_of(corpus, out, **NEW, resume=True)).learned is None  # it is finished


@pytest.mark.parametrize("content", ["{", json.dumps({"schema_version": SCHEMA_VERSION, "settings": {}})])
def test_a_damaged_final_report_is_an_error_with_a_remedy(corpus: Path, out: Path, content: str) -> None:
    (out / "unfinished").mkdir()
    (out / "unfinished" / layout.DONE_FILE).write_text(content)
    before = contents(out)
    for resume in (False, True):
        with pytest.raises(ResumeError, match=r"done\.json is damaged: start over with restart=True"):
            bpeflow.train(settings_of(corpus, out, **NEW, resume=resume))
    assert contents(out) == before
    bpeflow.train(settings_of(corpus, out, **NEW, restart=True))
    assert not (out / "unfinished").exists()


def test_counts_of_an_unfinished_run_do_not_get_the_vocabulary_of_others(
    corpus: Path, out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file of the finished counts, given by name, means those."""
    with monkeypatch.context() as patch:
        FAILURES["while learning"](patch)
        with pytest.raises(OSError, match="No space left"):
            bpeflow.train(settings_of(corpus, out, segment_size="6kb", **NEW))
    before = contents(out)
    for flags in ([], ["--resume"]):
        assert merge(out / "counts.npz", *flags) == 2
        assert "has an unfinished run (counts.npz)" in capsys.readouterr().err
    assert contents(out) == before
    assert merge(out / "counts.npz", "--restart") == 0
    assert (out / "counts.npz").read_bytes() == before["counts.npz"]
    assert not (out / "unfinished").exists()


def test_an_empty_unfinished_folder_is_removed_even_without_memory_to_list_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*_: object) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    def look(scandir: Callable[..., object]) -> None:
        with monkeypatch.context() as patch, pytest.raises(OSError, match="Cannot allocate"):
            patch.setattr(os, "scandir", scandir)
            patch.setattr(Path, "glob", scandir)
            run_dir.remove_useless(tmp_path)

    (tmp_path / layout.UNFINISHED).mkdir()
    look(no_memory)
    assert not (tmp_path / layout.UNFINISHED).exists()
    (tmp_path / layout.UNFINISHED).mkdir()
    (tmp_path / layout.UNFINISHED / "counts.npz").touch()
    look(no_memory)
    assert (tmp_path / layout.UNFINISHED / "counts.npz").exists()
