"""The probe of a cluster: before any work, a task on each node finds out whether the node can take part."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

import regex

from bpeflow import __version__
from bpeflow._util.native import ABI
from bpeflow.corpus.reader import check_unchanged
from bpeflow.corpus.sources import CorpusEntry
from bpeflow.engines.engine import Call, Engine, TaskReport
from bpeflow.errors import BpeflowError, EngineError, NativeUnavailableError
from bpeflow.pretokenize.native import native_unicode_version
from bpeflow.pretokenize.regex import unicode_version

#: The most inputs that each node looks at before the work. Tasks look at all of theirs. Looking at one takes about a
#: millisecond on network storage.
_MOST_INPUTS = 1000


@dataclass(frozen=True)
class NodeProbe:
    """What a node has found out.

    Attributes:
        versions: whatever the result may depend on, by name.
        answer: name of the file that it has written to the shared folder.
    """

    versions: dict[str, str]
    answer: str


def own_versions() -> dict[str, str]:
    """Return the versions of the calling process, in the order in which to compare them."""
    try:
        native = {"native libraries": f"version {ABI}", "Unicode of native code": native_unicode_version()}
    except NativeUnavailableError:
        native = {"native libraries": "none", "Unicode of native code": "none"}
    return {
        "bpeflow": __version__,
        **native,
        "regex": regex.__version__,
        "Unicode of regex": unicode_version(),
        "byte order": sys.byteorder,
    }


def probe_node(folder: Path, question: str, text: str, entries: Sequence[CorpusEntry], remedy: str) -> NodeProbe:
    """Look at this node; the function of the probing task.

    Raises:
        EngineError: the node does not see the folder, or cannot write to it.
        CorpusError: an input is missing, or is not the one that was found.
    """
    answer = f".probe-{token_hex(8)}.part"
    try:
        if (folder / question).read_text() != text:
            raise EngineError(f"{folder} has other files here: {_SHARE}")
        check_unchanged(entries, remedy, was_read=False)
        (folder / answer).write_text(text)
    except FileNotFoundError as error:
        raise EngineError(f"{folder} does not exist here, or has other files: {_SHARE}") from error
    except OSError as error:
        raise EngineError(f"cannot read and write in {folder}: {error.strerror}; {_SHARE}") from error
    return NodeProbe(own_versions(), answer)


_SHARE = "the output folder must be on storage that all nodes share, under the same path"


def check_nodes(engine: Engine, folder: Path, entries: Sequence[CorpusEntry], remedy: str) -> list[str]:
    """Check that every node has the same software, the same inputs and the same output folder as this process.

    Args:
        engine: the engine.
        folder: the output folder, which exists; its path is absolute.
        entries: the inputs, with absolute paths. If there are many, nodes look at a part of them.
        remedy: what helps if a node has other inputs.

    Returns:
        The host names of the nodes.

    Raises:
        EngineError: a node differs, or does not share the folder. The message names it.
        CorpusError: a node does not have the same inputs.
    """
    text, question = token_hex(16), f".probe-{token_hex(8)}.part"
    looked_at = tuple(entries[:: -(-len(entries) // _MOST_INPUTS)] if entries else ())
    answers: list[str] = []
    try:
        (folder / question).write_text(text)
        outcomes = engine.nodes(Call("probe", probe_node, (folder, question, text, looked_at, remedy)))
        answers = [outcome.value.answer for outcome in outcomes if isinstance(outcome, TaskReport)]
        for outcome in outcomes:
            if isinstance(outcome, BpeflowError):
                raise outcome
            _check_node(outcome, folder, text)
    finally:
        _remove(folder / name for name in (question, *answers))
    if not outcomes:
        raise EngineError("the cluster has no nodes")
    return [outcome.node for outcome in outcomes if isinstance(outcome, TaskReport)]


def _check_node(report: TaskReport, folder: Path, text: str) -> None:
    probe: NodeProbe = report.value
    for name, own in own_versions().items():
        if (found := probe.versions.get(name, "unknown")) != own:
            raise EngineError(
                f"node {report.node} has {name} {found}, this machine {own}: install the same version of bpeflow and "
                "of its dependencies on all nodes"
            )
    try:
        answer = (folder / probe.answer).read_text()
    except OSError:
        answer = ""
    if answer != text:
        raise EngineError(f"node {report.node} writes to another {folder} than this machine: {_SHARE}")


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink(missing_ok=True)
