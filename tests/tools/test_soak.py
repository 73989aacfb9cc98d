"""Tests of the soak: it runs, it varies every setting, and it detects wrong results."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pytest
from pydantic import BaseModel

import soak
from bpeflow.config import Settings, SourceSettings
from soaking import process, trial
from soaking.corpora import Corpus, make_corpus
from soaking.expected import Expected, PlainRunError, files_of, plain_run, prove
from soaking.process import Ended, Process
from soaking.settings import LEFT_OUT, draw_result_settings, draw_run_settings, draw_superwords
from soaking.verdict import problems_of_end, problems_of_folder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="resource limits and /proc are those of Linux"),
]

# ---- it runs ----


def test_trials_succeed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--seed", "6", "--folder", str(tmp_path / "soak"), "--json", str(tmp_path / "soak.json")]
    assert soak.main([*arguments, "--trials", "1"]) == 0, capsys.readouterr().out
    report = json.loads((tmp_path / "soak.json").read_text(encoding="utf-8"))
    assert report["seed"] == 6
    assert report["tally"]["trials"] == 1
    assert report["tally"]["runs"] >= 1
    assert report["lost"] == []
    assert not (tmp_path / "soak").exists()


def test_a_failed_trial_is_reported_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong_run(*arguments: Any) -> Expected:
        expected = plain_run(*arguments)
        return replace(expected, files={**expected.files, "counts.npz": b"others"})

    monkeypatch.setattr(trial, "plain_run", wrong_run)
    drawn = [draw_result_settings(Random(f"5/{k}")) for k in range(99)]
    number = next(k for k, it in enumerate(drawn) if it["invalid_utf8"] != "error" and it["bad_records"] != "error")
    assert soak.main(["--seed", "5", "--trial", str(number), "--folder", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert f"FAILED: trial {number}: " in printed
    assert f"tools/soak.py --seed 5 --trial {number}" in printed
    log = (tmp_path / f"trial-{number}" / "log.txt").read_text(encoding="utf-8")
    assert "bpeflow --config" in log
    assert "FAILED: " in log


def test_a_killed_soak_leaves_no_process(tmp_path: Path) -> None:
    script = Path(soak.__file__)
    main = subprocess.Popen([sys.executable, script, "--folder", tmp_path, "--seed", "1"], stdout=subprocess.DEVNULL)
    children: list[psutil.Process] = []
    while len(children) < 5:  # a resource tracker, two workers, and their runs
        assert main.poll() is None
        time.sleep(0.05)
        children = psutil.Process(main.pid).children(recursive=True)
    main.kill()
    main.wait()
    _, alive = psutil.wait_procs(children, timeout=30)
    assert alive == []


# ---- it varies every setting ----


def draw(tmp_path: Path, number: int) -> tuple[dict[str, Any], Corpus, dict[str, Any]]:
    choose = Random(number)
    settings = draw_result_settings(choose)
    corpus = make_corpus(choose, tmp_path / str(number) / "corpus" / "it", settings, choose.choice((0, 300)))
    settings |= draw_superwords(choose, settings)
    return settings, corpus, draw_run_settings(choose, corpus.size, str(tmp_path))


def dotted_names(model: type[BaseModel], prefix: str = "") -> set[str]:
    names = set()
    for name, field in model.model_fields.items():
        nested = SourceSettings if name == "sources" else field.annotation
        if isinstance(nested, type) and issubclass(nested, BaseModel):
            names |= dotted_names(nested, f"{name}.")
        else:
            names.add(prefix + name)
    return names


def flat(values: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            found |= {f"{name}.{inner}": nested for inner, nested in value.items()}
        elif isinstance(value, list) and any(isinstance(source, dict) for source in value):
            for source in value:
                found |= {f"sources.{inner}": nested for inner, nested in source.items()}
        else:
            found[name] = value
    return found


def test_every_setting_is_varied_or_left_out_for_a_reason(tmp_path: Path) -> None:
    drawn = []
    for number in range(120):
        settings, corpus, free = draw(tmp_path, number)
        drawn.append(flat({**settings, **corpus.settings, **free}))
    names = {name for values in drawn for name in values}
    varied = {name for name in names if len({repr(values.get(name)) for values in drawn}) > 1} | {"init_from"}
    existing = dotted_names(Settings)
    assert varied <= existing, "these settings do not exist"
    assert not varied & set(LEFT_OUT)
    assert existing - varied == set(LEFT_OUT), "draw new settings in tools/soaking/settings.py, or add them to LEFT_OUT"


def test_a_trial_depends_only_on_seed_and_number(tmp_path: Path) -> None:
    for number in range(10):
        first, again = draw(tmp_path / "a", number), draw(tmp_path / "a" / "again", number)
        assert first[0] == again[0]
        assert first[1].parts == again[1].parts
        names = [str(first[1].folder), str(again[1].folder)]
        assert files_of(first[1].folder) == files_of(again[1].folder), names


# ---- it detects an unclean end ----


def ended(**changes: Any) -> Ended:
    success = Ended(0, "", "", 1.0, hung=False, orphans=[], shared=[], temporary=[], signals=[])
    return replace(success, **changes)


FAILED = {"status": 1, "stderr": "INFO: this\nbpeflow: no room\n"}
IGNORED_SIGNAL = (
    'Exception ignored in: <function f>\nTraceback (most recent call last):\n  File "bpeflow/cli/exit.py", line 9\n'
    "KeyboardInterrupt: \n"
)
KILLED = ended(status=-9, signals=[signal.SIGKILL])


@pytest.mark.parametrize(
    "end",
    [
        ended(),
        ended(**FAILED),
        ended(status=-9, signals=[signal.SIGKILL], temporary=["tmp1"]),
        ended(status=130, signals=[signal.SIGINT], stderr="bpeflow: interrupted"),
        ended(status=143, signals=[signal.SIGTERM]),
        ended(status=-signal.SIGABRT, short_of_memory=True, stderr="terminate called: bad_alloc\nFatal Python error"),
        ended(status=-signal.SIGSEGV, short_of_memory=True, temporary=["tmp1"]),
        ended(status=1, short_of_memory=True, stderr="Exception ignored in thread started by: <>\nMemoryError\n"),
        ended(status=127, short_of_memory=True, stderr="cannot allocate memory for thread-local data: ABORT\n"),
        ended(signals=[signal.SIGINT], stderr=IGNORED_SIGNAL + "bpeflow: done\n"),
        ended(status=-2, signals=[signal.SIGINT], stderr='Traceback (most recent call last)\n  File "site.py"'),
    ],
)
def test_a_clean_end_has_no_problems(end: Ended) -> None:
    assert problems_of_end(end) == []


@pytest.mark.parametrize(
    ("end", "problem"),
    [
        (ended(hung=True, status=-6), "hangs"),
        (ended(status=3), "exit status 3"),
        (ended(status=127), "exit status 127"),
        (ended(status=-9), "exit status -9"),
        (ended(status=-11, signals=[signal.SIGTERM]), "exit status -11"),
        (ended(status=-11, stderr="bpeflow: no memory"), "exit status -11"),
        (ended(status=-6, stderr="Fatal Python error: Aborted\n"), "exit status -6"),
        (ended(short_of_memory=True, hung=True, status=-6), "hangs"),
        (ended(short_of_memory=True, stderr="Fatal Python error: Aborted\n"), "Fatal Python error"),
        (ended(short_of_memory=True, status=1, orphans=["7 python"]), "process left running"),
        (ended(short_of_memory=True, status=1, temporary=["tmp1"]), "TMPDIR"),
        (ended(status=-9, signals=[signal.SIGKILL], temporary=["pymp-1"]), "TMPDIR"),
        (ended(stderr=IGNORED_SIGNAL), "Exception ignored"),
        (ended(status=130), "exit status 130"),
        (ended(status=1, stderr="something"), "without a one-line message"),
        (ended(**FAILED | {"stderr": "bpeflow: one\nand two"}), "without a one-line message"),
        (ended(stderr="Traceback (most recent call last):\n"), "Traceback"),
        (
            ended(
                status=130,
                signals=[signal.SIGINT],
                stderr='Traceback (most recent call last):\n  File "bpeflow/cli.py"',
            ),
            "Traceback",
        ),
        (ended(**FAILED | {"stderr": "Exception ignored in: x\nbpeflow: y"}), "Exception ignored"),
        (ended(orphans=["7 python"]), "process left running"),
        (ended(shared=["sem.mp-x"]), "/dev/shm"),
        (ended(temporary=["tmpx"]), "TMPDIR"),
        (ended(status=-9, signals=[signal.SIGKILL], temporary=["bpeflow-0"]), "TMPDIR"),
    ],
)
def test_an_unclean_end_is_detected(end: Ended, problem: str) -> None:
    assert any(problem in found for found in problems_of_end(end))


LEAVES_EVERYTHING = """
import os, subprocess, sys, tempfile, time
from multiprocessing import resource_tracker, shared_memory
if sys.argv[1] == "hang":
    time.sleep(60)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
open(os.path.join(tempfile.gettempdir(), "left"), "w")
memory = shared_memory.SharedMemory(create=True, size=1)
resource_tracker.unregister(memory._name, "shared_memory")
time.sleep(0.3)
os._exit(3)
"""


def test_everything_left_by_a_process_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "it.py").write_text(LEAVES_EVERYTHING)
    monkeypatch.setattr(process, "_LAUNCH", str(tmp_path / "it.py"))
    monkeypatch.setattr(process, "LINGER", 0.2)
    end = Process(["leave"], tmp_path, impatient=True).wait()
    assert end.status == 3
    assert end.temporary == ["left"]
    [orphan] = end.orphans
    assert "time.sleep(60)" in orphan
    [name] = end.shared
    Path("/dev/shm", name).unlink()
    monkeypatch.setattr(process, "HANG", 3.0)
    hanging = Process(["hang"], tmp_path, impatient=True).wait()
    assert hanging.hung
    assert "it.py" in hanging.stderr  # from the stack


# ---- it detects wrong contents of the run folder ----

EXPECTED = Expected({"counts.npz": b"counts", "vocab.json": b"vocab"})
PREVIOUS = {"counts.npz": b"old counts", "vocab.json": b"old vocab"}


def folder_with(tmp_path: Path, files: dict[str, bytes]) -> Path:
    folder = tmp_path / "run"
    for name, data in {**files, "run.json": b"varies"}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize(
    ("files", "end"),
    [
        (EXPECTED.files, ended()),
        (EXPECTED.files, ended(**FAILED)),
        (PREVIOUS, ended(**FAILED)),
        ({**PREVIOUS, "unfinished/segments/manifest.json": b"some"}, ended(**FAILED)),
        ({**PREVIOUS, "unfinished/counts.npz": b"counts", "unfinished/run.json": b"{}"}, ended(**FAILED)),
        ({**PREVIOUS, ".lock": b"", "unfinished/.vocab.json.7.part": b"v", "unfinished/segments/.x.part": b""}, KILLED),
        ({"counts.npz": b"counts", "unfinished/vocab.json": b"vocab", "unfinished/done.json": b"{}"}, KILLED),
        ({"vocab.json": b"old vocab", "unfinished/done.json": b"{}"}, KILLED),
    ],
)
def test_a_right_folder_has_no_problems(tmp_path: Path, files: dict[str, bytes], end: Ended) -> None:
    assert problems_of_folder(folder_with(tmp_path, files), end, [EXPECTED], PREVIOUS) == []


def test_leftovers_of_a_killed_run_are_no_problem_of_a_run_that_never_locked_the_folder(tmp_path: Path) -> None:
    left = {**PREVIOUS, ".lock": b"of 7", "unfinished/.counts.npz.7.part": b"", ".scratch-0/x.shard": b""}
    interrupted = ended(status=130, signals=[signal.SIGINT])
    folder = folder_with(tmp_path, left)
    assert problems_of_folder(folder, interrupted, [EXPECTED], left) == []
    (folder / ".lock").write_bytes(b"of 8")
    assert "left: .lock" in problems_of_folder(folder, interrupted, [EXPECTED], left)


def test_leftovers_of_our_damage_are_no_problem_of_a_run_that_never_locked_the_folder(tmp_path: Path) -> None:
    left = {**PREVIOUS, "unfinished/segments/fingerprint.json": b"{}"}  # the manifest was removed
    folder = folder_with(tmp_path, left)
    assert problems_of_folder(folder, ended(**FAILED), [EXPECTED], left) == []
    problem = "left: unfinished/ without anything to resume"
    (folder / "unfinished/counts.npz").write_bytes(EXPECTED.files["counts.npz"])
    assert problem in problems_of_folder(folder, ended(**FAILED), [EXPECTED], left)
    (tmp_path / "new").mkdir()
    empty = folder_with(tmp_path / "new", PREVIOUS)
    (empty / "unfinished").mkdir()
    assert problem in problems_of_folder(empty, ended(**FAILED), [EXPECTED], PREVIOUS)


@pytest.mark.parametrize(
    ("files", "end", "problem"),
    [
        ({**EXPECTED.files, "vocab.json": b"Vocab"}, ended(), "vocab.json is wrong"),
        ({"counts.npz": b"counts"}, ended(), "vocab.json is missing"),
        ({**EXPECTED.files, "unfinished/segments/000000.shard": b""}, ended(), "is unexpected"),
        (PREVIOUS, ended(), "is wrong"),
        ({"vocab.json": b"old vocab"}, ended(**FAILED), "results changed: ['counts.npz']"),
        ({}, KILLED, "results changed: ['counts.npz', 'vocab.json']"),
        ({"vocab.json": b"voc", "unfinished/done.json": b"{}"}, KILLED, "neither"),
        (
            {"counts.npz": b"counts", "vocab.json": b"old vocab", "unfinished/done.json": b"{}"},
            KILLED,
            "files of two runs",
        ),
        (
            {**PREVIOUS, "unfinished/counts.npz": b"others"},
            ended(**FAILED),
            "unfinished/counts.npz has wrong contents",
        ),
        ({**PREVIOUS, "unfinished/vocab.json": b"vocab"}, ended(**FAILED), "left: unfinished/vocab.json"),
        ({**PREVIOUS, "unfinished/monitor.jsonl": b""}, ended(**FAILED), "without anything to resume"),
        ({".lock": b""}, ended(**FAILED), "left: .lock"),
        ({"unfinished/.merges.txt.7.part": b""}, ended(status=130, signals=[signal.SIGINT]), "left: "),
        ({**EXPECTED.files, ".scratch-0/x.shard": b""}, ended(), "left: .scratch-0"),
    ],
)
def test_a_wrong_folder_is_detected(tmp_path: Path, files: dict[str, bytes], end: Ended, problem: str) -> None:
    found = problems_of_folder(folder_with(tmp_path, files), end, [EXPECTED], PREVIOUS)
    assert any(problem in each for each in found), found


def test_success_of_a_run_that_must_fail_is_a_problem(tmp_path: Path) -> None:
    found = problems_of_folder(folder_with(tmp_path, {}), ended(), [Expected({}, "not UTF-8")], {})
    assert "must fail" in found[0]


# ---- it checks the plain run against the definition ----


@pytest.mark.parametrize("harm", ["counts", "merges", "vocabulary", "error", "no error"])
def test_a_wrong_plain_run_is_detected(tmp_path: Path, harm: str) -> None:
    (tmp_path / "corpus").mkdir()
    settings = draw_result_settings(Random(1)) | {
        "special_tokens": ["<|endoftext|>"], "separator": None, "pattern": "gpt2", "vocab_sizes": [280],
        "invalid_utf8": "error", "skip_merge": False, "min_frequency": 1, "max_token_length": None,
    }  # fmt: skip
    settings.pop("vocab_size", None)
    corpus = make_corpus(Random(2), tmp_path / "corpus" / "it", settings, 0)
    part = replace(
        corpus.parts[0], name="a.txt", kind="text", content=b"low lower lowest newest\xff" * 3, compression=""
    )
    if harm != "no error":
        part = replace(part, content=part.content.replace(b"\xff", b" "))
    (tmp_path / "a.txt").write_bytes(part.content)
    corpus = replace(corpus, folder=tmp_path, sources=[({}, [part])])
    settings |= {"input": [str(tmp_path / "a.txt")]}
    expected = plain_run(settings, tmp_path / "plain")
    checked = prove(expected, settings, corpus, tmp_path / "plain")
    assert checked.proved
    assert checked.files == expected.files
    match harm:
        case "counts":
            corpus = replace(corpus, sources=[({"weight": 2}, [part])])
        case "merges":
            wrong = expected.files["merges.txt"].replace(b"l o", b"o l")
            expected = replace(expected, files={**expected.files, "merges.txt": wrong})
        case "vocabulary":
            vocab = json.loads(expected.files["vocab.json"])
            vocab.pop("low")
            expected = replace(expected, files={**expected.files, "vocab.json": json.dumps(vocab).encode()})
        case _:
            expected = Expected({}, "something" if harm == "error" else "")
    with pytest.raises(PlainRunError):
        prove(expected, settings, corpus, tmp_path / "plain")
