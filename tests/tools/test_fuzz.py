"""Tests of tools/fuzz: the targets pass, they detect differences, and the command reports libFuzzer's outcome."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from available import skip_missing

from bpeflow.backends import BACKENDS
from bpeflow.backends.native_backend import NativeSession
from bpeflow.counting.merger import NativeSum
from bpeflow.counting.shards import Shard
from bpeflow.counting.table import NativeTable
from bpeflow.pretokenize.native import native_unicode_version, why_regex
from bpeflow.pretokenize.regex import load_pretokenizer, unicode_version
from bpeflow.tokenizer.native_encoder import NativeEncoder
from fuzzing import cli
from fuzzing.build import MissingToolError
from fuzzing.campaign import Result, _read
from fuzzing.choices import Choices
from fuzzing.difference import DifferenceError

pytestmark = pytest.mark.slow

#: Fixed inputs. Finding new ones is libFuzzer's task.
INPUTS = [random.Random(number).randbytes(10 * number) for number in range(40)]


@pytest.fixture(params=cli.TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    skip_missing("count", why_regex(load_pretokenizer("gpt2")))
    for backend in BACKENDS:
        skip_missing(backend.name, backend.unavailable())
    if native_unicode_version() != unicode_version():
        pytest.skip("the native tables and the installed regex have different Unicode versions")
    return str(request.param)


def check(target: str) -> Callable[[bytes], None]:
    function: Callable[[bytes], None] = importlib.import_module(f"fuzzing.{target}").check
    return function


def test_native_code_and_specification_agree(target: str) -> None:
    for data in INPUTS:
        check(target)(data)


#: For each target, a way to break native code: a method, and a function that spoils its result.
WRONG: dict[str, tuple[type, str, Callable[[Any], Any]]] = {
    "scanner": (NativeTable, "shard", lambda shard: Shard.pack(list(shard.items())[1:])),
    "patterns": (NativeTable, "shard", lambda shard: Shard.pack([*shard.items(), (b"more", 1)])),
    "table": (NativeTable, "__len__", lambda length: length + 1),
    "shards": (NativeSum, "write", lambda shard: Shard.pack((token, 1) for token, _ in shard.items())),
    "merge": (NativeSession, "step", lambda merges: merges[:-1]),
    "encoder": (NativeEncoder, "encode_to_array", lambda ids: np.flip(ids)),
}


def test_a_difference_is_detected(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if target not in WRONG:
        pytest.skip("this target compares nothing: the sanitizers check it")
    native, name, spoil = WRONG[target]
    right = getattr(native, name)
    monkeypatch.setattr(native, name, lambda *arguments: spoil(right(*arguments)))
    with pytest.raises(DifferenceError):
        for data in INPUTS:
            check(target)(data)


def test_choices_end_with_the_bytes() -> None:
    choices = Choices(b"\x05\x01\x02\x03")
    assert choices.below(4) == 1
    assert choices.below(1000) == 0x0201
    assert choices.left == 1
    assert choices.take(9) == b"\x03"
    assert (choices.below(7), choices.flag(), choices.count(), choices.left) == (0, False, 1, 0)
    assert {Choices(bytes([size, 0])).count().bit_length() for size in range(256)} >= {1, 2, 4, 31, 33, 63}
    assert max(Choices(bytes([255, more])).count() for more in range(6)) == 2**63 - 1


PROGRESS = """\
INFO: seed corpus: files: 64 min: 4b max: 252b total: 8064b rss: 109Mb
#65\tINITED cov: 400 ft: 800 corp: 50/2000b exec/s: 60 rss: 150Mb
#90\tNEW    cov: 410 ft: 811 corp: 51/2020b lim: 252 exec/s: 90 rss: 151Mb L: 20/252 MS: 1 EraseBytes-
"""
DONE = PROGRESS + "#1200\tDONE   cov: 420 ft: 900 corp: 60/2400b lim: 252 exec/s: 100 rss: 160Mb\n"
CRASHED = PROGRESS + "==1== ERROR: libFuzzer: deadly signal\nTest unit written to found/scanner-crash-0123\n"
NO_COVERAGE = "#2\tINITED exec/s: 0 rss: 109Mb\nstat::number_of_executed_units: 500\n"


def test_the_output_of_libfuzzer_is_parsed() -> None:
    done, crashed, no_coverage = _read(DONE, 0), _read(CRASHED, 77), _read(NO_COVERAGE, 0)
    assert (done.inputs, done.edges, done.corpus, done.found, done.guided) == (1200, (400, 420), 60, None, True)
    assert (crashed.inputs, crashed.found) == (90, Path("found/scanner-crash-0123"))
    assert (no_coverage.inputs, no_coverage.guided) == (500, False)


def run_command(monkeypatch: pytest.MonkeyPatch, *results: Result) -> int:
    """Run ``tools/fuzz all`` with these results of libFuzzer, one per target; the last one is repeated."""
    waiting = list(results)
    monkeypatch.setattr(cli, "runtime", lambda: Path("runtime"))
    monkeypatch.setattr(cli, "build", lambda: Path("libraries"))
    monkeypatch.setattr(cli, "fuzz", lambda *_: waiting.pop(0) if len(waiting) > 1 else waiting[0])
    return cli.main(["all", "--seconds", "1"])


def test_every_target_has_a_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(monkeypatch, _read(DONE, 0)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == list(cli.TARGETS)
    assert all("no finding; 1,200 inputs in 0 s, 400 edges at first and 420 at the end" in line for line in lines)


def test_a_finding_is_a_failure_and_can_be_reproduced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(monkeypatch, _read(CRASHED, 77), _read(DONE, 0)) == 1
    printed = capsys.readouterr().out
    assert "deadly signal" in printed
    assert "to reproduce: tools/fuzz scanner --input found/scanner-crash-0123" in printed


def test_fuzzing_without_coverage_of_the_native_code_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(monkeypatch, _read(NO_COVERAGE, 0)) == 1
    assert "the libraries are not instrumented for it" in capsys.readouterr().out


def test_a_missing_requirement_is_reported_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> Path:
        raise MissingToolError("atheris is missing: pip install it")

    monkeypatch.setattr(cli, "runtime", missing)
    assert cli.main(["scanner"]) == 2
    assert capsys.readouterr().err == "fuzz: atheris is missing: pip install it\n"
