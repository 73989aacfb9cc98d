"""Shared fixtures: the available backends and scanners."""

from __future__ import annotations

import compileall
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from available import chosen, fail_if_required, skip_missing
from how_many import ONE_IN, one_in
from hypothesis import HealthCheck, settings
from tasks import with_strips

import bpeflow
from bpeflow.backends import BACKENDS
from bpeflow.backends.base import MergeBackend
from bpeflow.backends.native_backend import NativeBackend
from bpeflow.cli.exit import ENDING_SIGNALS
from bpeflow.pretokenize.native import INSTRUCTIONS_VARIABLE, why_regex
from bpeflow.pretokenize.regex import load_pretokenizer

# On a busy machine slow is not a failure. A failure prints how to reproduce it.
settings.register_profile(
    "bpeflow",
    max_examples=one_in(100),
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("bpeflow")


class FewerExamples(settings):
    """Hypothesis' settings, with one in `ONE_IN` of the examples."""

    def __init__(self, *arguments: Any, max_examples: int | None = None, **options: Any) -> None:
        if max_examples is not None:
            options["max_examples"] = one_in(max_examples)
        super().__init__(*arguments, **options)


if ONE_IN > 1:
    hypothesis.settings = FewerExamples  # for test modules, which are imported later


# Processor time is limited in seconds. An emulated processor (`.ci/emulated`) gets as little done in many of them.
if SLOWER := int(os.environ.get("BPEFLOW_TIMES_SLOWER", "0")):
    from bpeflow.pretokenize import automaton, compiled, limits

    automaton._MAX_SECONDS *= SLOWER
    compiled._MAX_SECONDS *= SLOWER
    limits._SECONDS *= SLOWER
    limits._CHARACTERS_PER_SECOND //= SLOWER


# A process started in a shell's background, or under nohup, ignores these, and so would everything that tests start.
for number, handler in {"SIGINT": signal.default_int_handler, "SIGHUP": signal.SIG_DFL}.items():
    if hasattr(signal, number) and signal.getsignal(getattr(signal, number)) is signal.SIG_IGN:
        signal.signal(getattr(signal, number), handler)


# Programs that tests start import faster with these, as the command line does (see `bpeflow.__main__`).
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")


@pytest.fixture(scope="session", autouse=True)
def compiled_modules() -> None:
    """Compile all modules once, and let none of the processes that tests start do it.

    It would take most of their time. And where a process may write small files only, Python takes a compiled module
    that was cut short for a whole one, which no later process can read.
    """
    for folder in (*bpeflow.__path__, Path(__file__).parent, Path(__file__).parents[1] / "tools"):
        compileall.compile_dir(folder, quiet=2)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


@pytest.fixture(scope="session", autouse=True)
def cache_folder_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Compile patterns once in each session, for all of its processes, and leave nothing in the user's cache folder."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")


@pytest.fixture(autouse=True)
def process_state() -> Iterator[None]:
    """The command line, which tests call, sets the logging level and the signal handlers of the whole process."""
    level = logging.getLogger().level
    handlers = {number: signal.getsignal(number) for number in ENDING_SIGNALS}
    yield
    logging.getLogger().setLevel(level)
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture(params=chosen(BACKENDS), ids=lambda backend: backend.name)
def backend(request: pytest.FixtureRequest) -> MergeBackend:
    """Every backend in turn; one that was not built here is skipped with its reason."""
    candidate: MergeBackend = request.param
    skip_missing(candidate.name, candidate.unavailable())
    return candidate


@pytest.fixture(scope="session")
def backends() -> list[MergeBackend]:
    """All available backends at once, to compare with one answer; the native ones also with strips of few positions."""
    for candidate in chosen(BACKENDS):
        if (reason := candidate.unavailable()) is not None:
            fail_if_required(candidate.name, reason)
    available = [candidate for candidate in chosen(BACKENDS) if candidate.unavailable() is None]
    return available + [with_strips(backend, 30) for backend in available if isinstance(backend, NativeBackend)]


@pytest.fixture(params=chosen(["regex", "native"]))
def scanner(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each way to find pre-tokens in turn."""
    if request.param == "native":
        skip_missing("count", why_regex(load_pretokenizer("gpt2")))
    else:
        monkeypatch.setenv(INSTRUCTIONS_VARIABLE, "regex")
    return str(request.param)
