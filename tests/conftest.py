"""What several test modules share: the backends and scanners at hand."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator

import pytest
from available import chosen, fail_if_required, skip_missing
from hypothesis import HealthCheck, settings

from bpeflow.backends.base import MergeBackend
from bpeflow.backends.choice import BACKENDS
from bpeflow.counting.table import why_regex
from bpeflow.pretokenize import load_pretokenizer

# On a machine that does other things, too, slow is no failure. A failure says how to see it again.
settings.register_profile(
    "bpeflow",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("bpeflow")


# Who is started in a shell's background, or under nohup, ignores these, and so would all that tests start.
for number, handler in {"SIGINT": signal.default_int_handler, "SIGHUP": signal.SIG_DFL}.items():
    if hasattr(signal, number) and signal.getsignal(getattr(signal, number)) is signal.SIG_IGN:
        signal.signal(getattr(signal, number), handler)


@pytest.fixture(autouse=True)
def logging_level() -> Iterator[None]:
    """The command line, which tests call, sets the level of the whole process."""
    before = logging.getLogger().level
    yield
    logging.getLogger().setLevel(before)


@pytest.fixture(params=chosen(BACKENDS), ids=lambda backend: backend.name)
def backend(request: pytest.FixtureRequest) -> MergeBackend:
    """Every backend in turn; one that was not built here is skipped with its reason."""
    candidate: MergeBackend = request.param
    skip_missing(candidate.name, candidate.unavailable())
    return candidate


@pytest.fixture(scope="session")
def backends() -> list[MergeBackend]:
    """Every backend at once, to be held against one answer; those that were not built here are left out."""
    for candidate in chosen(BACKENDS):
        if (reason := candidate.unavailable()) is not None:
            fail_if_required(candidate.name, reason)
    return [candidate for candidate in chosen(BACKENDS) if candidate.unavailable() is None]


@pytest.fixture(params=chosen(["regex", "native"]))
def scanner(request: pytest.FixtureRequest) -> str:
    """Each way to find pre-tokens in turn."""
    if request.param == "native":
        skip_missing("count", why_regex(load_pretokenizer("gpt2")))
    return str(request.param)
