"""Resuming: however a run ends, the next one continues to the same bytes, or says why it cannot."""

from __future__ import annotations

import json
import logging
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
from crash_run import Fault, wait_for
from distinct_words import distinct_words, write_corpus
from forked_program import ForkedProgram

import bpeflow
from bpeflow.cli.main import main
from bpeflow.errors import ConfigError, ResumeError
from bpeflow.run_dir.layout import CHECKPOINT_FILE
from bpeflow.training import learn as merging

SCRIPT = Path(__file__).parents[1] / "support" / "killed_runs.py"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus")


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"segment_size": "6kb"},
        {"tie_break": "huggingface"},
        {"segment_size": "6kb", "superwords": True, "transition_size": 290},
        {"segment_size": "6kb", "superwords": True, "transition_size": 290, "cut_from": 1},
    ],
    ids=["segments", "huggingface", "superwords", "superwords from fragments"],
)
def test_a_run_that_is_killed_at_any_step_resumes_to_the_same_bytes(
    corpus: Path, tmp_path: Path, options: dict[str, object]
) -> None:
    seed = random.randrange(2**32)
    settings = {
        "input": str(corpus), "vocab_size": 330, "backend": "python", "num_counter": 1, "chunk_size": "2kb",
        "out_dir": str(tmp_path / "runs"), **options,
    }  # fmt: skip
    (tmp_path / "runs").mkdir()
    done = subprocess.run(
        [sys.executable, str(SCRIPT), json.dumps(settings), str(seed)],
        capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, f"seed {seed}: {done.stdout}{done.stderr[-3000:]}"
    outcome = json.loads(done.stdout)
    assert outcome["steps"] > 25
    assert outcome["refused"] > 0


# ---- processes ----


def command(corpus: Path, out: Path, *flags: str) -> list[str]:
    """A run with worker processes, in many segments."""
    settings = ["executor=processes", "segment_size=350kb", "chunk_size=40kb"]
    assignments = [word for setting in settings for word in ("--set", setting)]
    paths = ["--input", str(corpus), "--vocab_size", "400", "--out_dir", str(out)]
    return [*paths, "-c", "2", "-m", "2", "--memory_limit", "16mb", *assignments, *flags]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    program = ForkedProgram(arguments, {**os.environ, **environment})
    _, errors = program.communicate(120)
    return subprocess.CompletedProcess(arguments, program.poll() or 0, stderr=errors)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About 1.2 MB, whose later parts have more distinct words."""
    path = tmp_path_factory.mktemp("large") / "text"
    documents = [distinct_words(seed % 3 if seed < 80 else seed, 1000) for seed in range(200)]
    path.write_text("<|endoftext|>".join(documents), encoding="utf-8")
    return path


RESULTS = ("counts.npz", "vocab.json", "merges.txt")


@pytest.fixture(scope="module")
def expected(large: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("unbroken") / "run"
    done = run(*command(large, out, "--set", "segment_size=1gb"))
    assert done.returncode == 0, done.stderr
    return {name: (out / name).read_bytes() for name in RESULTS}


def assert_resumes(large: Path, out: Path, expected: dict[str, bytes], *flags: str) -> dict[str, Any]:
    done = run(*command(large, out, "--resume", *flags))
    assert done.returncode == 0, done.stderr
    assert {name: (out / name).read_bytes() for name in RESULTS} == expected
    assert {path.name for path in out.iterdir()} - {"monitor.jsonl"} == {*RESULTS, "bpeflow.json", "run.json"}
    report: dict[str, Any] = json.loads((out / "run.json").read_text(encoding="utf-8"))
    return report


def start(arguments: list[str], held: Path, segments: int) -> ForkedProgram:
    """Start a run that waits, when this number of segments is done, as long as the file `held` exists."""
    fault = Fault("bpeflow.counting.segments:write_segment", "wait", segments + 1)
    program = ForkedProgram(arguments, {**os.environ, **fault.environment(held)})
    assert wait_for(held, program) == program.pid
    return program


MONITOR = ["--do_monitor", "--set", "monitor.interval=0.05"]


@pytest.fixture(scope="module")
def killed(large: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run that was killed when three segments were done."""
    folder = tmp_path_factory.mktemp("killed")
    program = start(command(large, folder / "run", *MONITOR), folder / "held", segments=3)
    program.kill()
    program.communicate()
    return folder / "run"


def copy_of(killed: Path, folder: Path) -> Path:
    """Copy the run, without its scratch folder, which it will look for in the place of the original."""
    return Path(shutil.copytree(killed, folder / "run", ignore=shutil.ignore_patterns(".scratch-*")))


def orphans(of: list[psutil.Process]) -> list[psutil.Process]:
    _, alive = psutil.wait_procs(of, timeout=20)
    return alive


@pytest.mark.slow
def test_the_main_process_may_be_killed_at_any_moment(large: Path, tmp_path: Path, expected: dict[str, bytes]) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)  # noqa: T201
    choose = random.Random(seed)
    out = tmp_path / "run"
    for attempt in range(3):
        program = ForkedProgram(command(large, out, "--resume", *MONITOR), os.environ)
        try:
            program.communicate(choose.uniform(0.1, 1.6))
        except subprocess.TimeoutExpired:
            with suppress(psutil.NoSuchProcess):  # it has just ended
                children = psutil.Process(program.pid).children(recursive=True)
                program.kill()
                assert not orphans(children), attempt
            program.communicate()
    assert_resumes(large, out, expected, "--do_monitor")


@pytest.mark.slow
def test_resumed_work_adds_up_in_the_report_and_the_monitor(
    large: Path, killed: Path, tmp_path: Path, expected: dict[str, bytes]
) -> None:
    out = copy_of(killed, tmp_path)
    report = assert_resumes(large, out, expected, *MONITOR)
    size = large.stat().st_size
    segments = report["counting"]["segments"]
    assert segments["resumed"] == 3
    assert segments["segments"] > segments["resumed"]
    assert segments["resumed_bytes"] >= 350_000 * segments["resumed"]
    assert report["corpus"]["bytes"] == report["counting"]["stages"]["counter"]["bytes"] == size
    assert report["corpus"]["documents"] == 200
    assert report["counting"]["seconds"] > segments["resumed_seconds"] > 0
    samples = [json.loads(line) for line in (out / "monitor.jsonl").read_text(encoding="utf-8").splitlines()]
    counted = [sample["stages"]["counter"]["weight_done"] for sample in samples if "counter" in sample["stages"]]
    assert max(counted) >= size - segments["resumed_bytes"]
    elapsed = [sample["elapsed"] for sample in samples]
    assert sum(later < earlier for earlier, later in pairwise(elapsed)) == 1  # the clock of the second run


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_is_resumed(
    large: Path, tmp_path: Path, expected: dict[str, bytes], number: int, status: int
) -> None:
    out = tmp_path / "run"
    program = start(command(large, out), tmp_path / "held", segments=2)
    children = psutil.Process(program.pid).children(recursive=True)
    os.kill(program.pid, number)
    _, err = program.communicate()
    assert program.returncode == status
    assert err.count(f"to continue: bpeflow --resume --out_dir {out}") == err.count("continue") == 1
    assert "Traceback" not in err
    assert not orphans(children)
    assert {path.relative_to(out).as_posix() for path in out.glob("*/*")} == {
        "unfinished/segments", "unfinished/settings.json",
    }  # fmt: skip
    assert_resumes(large, out, expected)


@pytest.mark.parametrize("segment_size", ["1kb", "8gb"])
def test_counts_are_only_discarded_on_request(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segment_size: str
) -> None:
    """Even if no merges were saved yet, in a run that is killed soon after counting."""
    settings = settings_of(corpus, tmp_path / "run", segment_size=segment_size)
    with monkeypatch.context() as patch:
        patch.setattr(merging, "learning_task", None)
        with pytest.raises(TypeError):
            bpeflow.train(settings)
    with pytest.raises(ResumeError, match=r"has an unfinished run \(counts\.npz\)"):
        bpeflow.train(settings)
    assert bpeflow.train({**settings, "resume": True}).report.resumed == "counts.npz"
    assert bpeflow.train({**settings, "overwrite": True}).report.resumed is None  # it is finished now


@pytest.mark.slow
def test_a_killed_worker_leaves_a_run_to_resume(
    large: Path, killed: Path, tmp_path: Path, expected: dict[str, bytes]
) -> None:
    out = copy_of(killed, tmp_path)
    fault = Fault("bpeflow.counting.counter:ChunkCounter._count", "kill").environment(tmp_path / "done")
    failed = run(*command(large, out, "--resume"), **fault)
    assert failed.returncode == 1
    assert "SIGKILL" in failed.stderr
    assert "to continue: bpeflow --resume" in failed.stderr
    assert not (out / ".lock").exists()
    refused = run(*command(large, out))
    assert refused.returncode == 2
    assert "has an unfinished run (segments/): resume it (--resume), discard it and start over" in refused.stderr
    assert assert_resumes(large, out, expected)["counting"]["segments"]["resumed"] == 3


@pytest.mark.slow
def test_a_full_disk_leaves_a_run_to_resume(large: Path, tmp_path: Path, expected: dict[str, bytes]) -> None:
    """No file may exceed 40 kB: enough for the counts of the first segments, but not of the later ones."""
    out = tmp_path / "run"
    arguments = [sys.executable, "-m", "bpeflow", *command(large, out, "--set", "segment_size=200kb")]
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (40_000, 40_000))
    failed = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=120, preexec_fn=limit)
    assert failed.returncode == 1
    assert "File too large" in failed.stderr
    assert "to continue: bpeflow --resume" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert not list(out.rglob(".*"))
    assert assert_resumes(large, out, expected)["counting"]["segments"]["resumed"] >= 1


@pytest.mark.slow
def test_a_second_run_is_refused_while_the_first_lives(
    large: Path, tmp_path: Path, expected: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    program = start(command(large, out), tmp_path / "held", segments=1)
    for flags in ([], ["--resume"], ["--restart"]):
        assert main(command(large, out, *flags)) == 1
        err = capsys.readouterr().err
        assert f"another run (process {program.pid} on " in err
        assert "use another out_dir" in err
    (tmp_path / "held").unlink()
    program.communicate()
    assert program.returncode == 0
    assert {name: (out / name).read_bytes() for name in RESULTS} == expected


@pytest.mark.slow
def test_the_scratch_folder_of_a_killed_run_is_removed(large: Path, tmp_path: Path, expected: dict[str, bytes]) -> None:
    """Wherever it is. That of another, living run stays."""
    out, scratch = tmp_path / "run", tmp_path / "scratch"
    (scratch / ".scratch-0123456789abcdef").mkdir(parents=True)
    program = start(command(large, out, "--set", f"scratch_dir={scratch}"), tmp_path / "held", segments=1)
    folder = Path(json.loads((out / ".lock").read_text(encoding="utf-8"))["scratch"])
    assert folder.parent == scratch
    folder.mkdir()
    (folder / "counter-0123456789abcdef.shard").write_bytes(b"?")
    program.kill()
    program.communicate()
    assert_resumes(large, out, expected)
    assert [path.name for path in scratch.iterdir()] == [".scratch-0123456789abcdef"]


# ---- the state of the folder, and the flags ----


def settings_of(corpus: Path, out: Path, **options: object) -> dict[str, object]:
    return {"input": str(corpus), "vocab_size": 330, "out_dir": str(out), "backend": "python", **options}


def test_a_finished_run_says_so_and_does_nothing(
    corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = bpeflow.train(settings_of(corpus, tmp_path / "run"))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()}
    with caplog.at_level(logging.INFO):
        again = bpeflow.train(settings_of(corpus, tmp_path / "run", resume=True))
    again_over = "nothing left to do (for other settings, start over with overwrite=True in place of resume=True)"
    assert f"is finished: {again_over}" in caplog.text
    assert (again.vocab, again.merges, again.counts) == (first.vocab, first.merges, first.counts)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()} == before


def test_a_run_without_merges_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("low low", encoding="utf-8")
    flags = ["--input", str(tmp_path / "a.txt"), "--vocab_size", "257", "--out_dir", str(tmp_path / "run")]
    assert main(flags) == 0
    shown = capsys.readouterr()
    assert "no merges: vocab_size 257 leaves no room for any" in shown.err
    assert f"written  {tmp_path / 'run'}: " in shown.out


@pytest.mark.parametrize(
    ("missing", "damage"),
    [("vocab.json", "gone"), ("merges.txt", "gone"), ("vocab_300/merges.txt", "gone"), ("vocab.json", "cut short")],
)
def test_only_learning_is_done_if_only_learning_is_missing(
    corpus: Path, tmp_path: Path, missing: str, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    settings = settings_of(corpus, out, vocab_sizes=[300, 330])
    del settings["vocab_size"]
    bpeflow.train(settings)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file() and path.name != "run.json"}
    if damage == "gone":
        (out / missing).unlink()
    else:
        os.truncate(out / missing, 100)
    monkeypatch.setattr("bpeflow.counting.count.CorpusCounter.count", None)
    result = bpeflow.train({**settings, "resume": True})
    assert result.report.resumed == "counts.npz"
    assert result.report.corpus.files == 3
    assert {path: path.read_bytes() for path in before} == before


def test_without_anything_to_resume_a_run_starts(corpus: Path, tmp_path: Path) -> None:
    result = bpeflow.train(settings_of(corpus, tmp_path / "run", resume=True))
    assert result.report.learning.learned == 73


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocab_size": 340}, r"vocab_size: 330 → 340.*bpeflow merge"),
        ({"tie_break": "huggingface"}, "tie_break: 'greatest_bytes' → 'huggingface'"),
        ({"pattern": "o200k"}, r"counted something else \(pattern: 'gpt2' → 'o200k'"),
        ({"pattern": "x|y"}, r"counted something else \(pattern: 'gpt2' → 'x\|y'"),
    ],
)
def test_a_finished_run_of_other_settings_is_refused(
    corpus: Path, tmp_path: Path, options: dict[str, object], message: str
) -> None:
    bpeflow.train(settings_of(corpus, tmp_path / "run"))
    with pytest.raises(ResumeError, match=message):
        bpeflow.train(settings_of(corpus, tmp_path / "run", resume=True, **options))


def test_counts_of_another_corpus_are_refused(corpus: Path, tmp_path: Path) -> None:
    bpeflow.train(settings_of(corpus, tmp_path / "run", skip_merge=True))
    (corpus / "d").write_text("more")
    message = r"the input was 3 files of [\d,]+ bytes and is 4 of .*overwrite=True in place of resume=True"
    with pytest.raises(ResumeError, match=message):
        bpeflow.train(settings_of(corpus, tmp_path / "run", resume=True))


@pytest.mark.parametrize("name", ["counts.npz", "run.json"])
def test_damaged_results_are_an_error_with_a_remedy(corpus: Path, tmp_path: Path, name: str) -> None:
    bpeflow.train(settings_of(corpus, tmp_path / "run", skip_merge=True))
    os.truncate(tmp_path / "run" / name, 200)
    with pytest.raises(ResumeError, match=rf"{name}: .*overwrite=True"):
        bpeflow.train(settings_of(corpus, tmp_path / "run", resume=True))
    result = bpeflow.train(settings_of(corpus, tmp_path / "run", overwrite=True))
    assert result.report.learning.learned == 73


def test_restart_discards_the_unfinished_run_and_says_so(
    corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    unfinished = tmp_path / "run" / "unfinished"
    (unfinished / "segments").mkdir(parents=True)
    (unfinished / "segments" / "manifest.json").write_text("damaged")
    (unfinished / CHECKPOINT_FILE).write_text("damaged")
    with pytest.raises(ResumeError, match=r"segments/ and merges\.partial"):
        bpeflow.train(settings_of(corpus, tmp_path / "run"))
    result = bpeflow.train(settings_of(corpus, tmp_path / "run", restart=True))
    assert "discarding the unfinished run" in caplog.text
    assert result.report.counting.segments is None
    assert not unfinished.exists()


@pytest.mark.parametrize("flags", [{"resume": True, "restart": True}, {"resume": True, "out_dir": None}])
def test_flags_that_make_no_sense_are_refused(corpus: Path, tmp_path: Path, flags: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"give one of the two|out_dir is missing"):
        bpeflow.train(settings_of(corpus, tmp_path / "run", **flags))
