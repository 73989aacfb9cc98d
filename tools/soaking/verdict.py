"""Judging how a run has ended, and what it has left: the right bytes, or a clean error, and nothing else."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from soaking.process import Ended
from soaking.right import Right, files_of

#: What multiprocessing says that is of no code but its own: its tracker of shared memory of what its killed predecessor
#: knew, and a worker that starts when the fork server was killed and the run is over.
_MULTIPROCESSING = re.compile(
    r"Traceback \(most recent call last\):\n"
    r'(  File "[^"]*multiprocessing/\w+\.py".*\n(    .*\n)*)+'
    r"\w+(:.*)?(\n|$)"
)
#: What is said when pyarrow finds no memory, while it is imported or later: its allocator, the C++ library or the C
#: library end the process, a worker or the main one.
_ARROW = re.compile(r"Fatal Python error: Aborted(?=(.|\n)*?Current thread(.|\n)*?site-packages/pyarrow/)")
#: What its allocator says when it gets no thread, after which the interpreter's end is a segmentation fault.
_ARROW_ENDS = re.compile(r"<jemalloc>: arena \d+ background thread creation failed")
#: What the interpreter says when it has no memory to begin a thread with, or not even to say so.
_NO_THREAD = re.compile(
    r"Exception ignored in (sys\.unraisablehook|thread started by): .*\n"
    r"(Traceback \(most recent call last\):\n)?"
    r'(  File "[^"]*/threading\.py".*\n(    .*\n)*)*'
    r"MemoryError:? ?(\n|$)"
)
_FRAME = re.compile(r'File "([^"]*)"')
_OUR_LINE = re.compile(r"(?:bpeflow|INFO|WARNING): .*")
#: The exit status with which the C library's dynamic linker ends a process that has no memory for a thread's variables.
_LINKER_GIVES_UP = 127
_UNCLEAN = ("Traceback (most recent call last)", "Exception ignored in", "Fatal Python error", "Segmentation fault")
#: Where a signal finds no code of ours yet that could end cleanly.
_STARTING = ("bpeflow/__init__.py", "bpeflow/__main__.py", "soaking/impatient.py")
#: What Python leaves of its own in the temporary folder if it is killed: folders for sockets, and temporary ones.
_OF_KILLED = re.compile(r"(pymp-|tmp).*")
_UNFINISHED = re.compile(r"unfinished/|\.lock|\.scratch-")
_TO_GO_ON_WITH = re.compile(r"segments/.*|merges\.partial|counts\.npz|run\.json|monitor\.jsonl|(.*/)?\.[^/]*")
#: The report of a run that is done: its files are taking the earlier ones' places.
_DONE = "unfinished/done.json"


class Lost(Exception):
    """A run has ended with something that is neither right nor a clean error."""


def how_it_ended(ended: Ended) -> str:
    """In a word or two."""
    if ended.status < 0:
        return f"by {signal.Signals(-ended.status).name}"
    words = {0: "well", 1: "error, the run failed", 2: "error, refused", 130: "after SIGINT", 143: "after SIGTERM"}
    return words.get(ended.status, f"status {ended.status}")


def died_early(ended: Ended) -> bool:
    """Whether a signal came before Python, or we, could do anything about it: from outside, or from a library."""
    if ended.status == _LINKER_GIVES_UP:
        return "cannot allocate memory for thread-local data: ABORT" in ended.stderr
    said = {-signal.SIGABRT: _ARROW, -signal.SIGSEGV: _ARROW_ENDS}.get(ended.status)
    by_arrow = said is not None and said.search(ended.stderr)
    return ended.status < 0 and (-ended.status in ended.signals or bool(by_arrow))


def problems_of_end(ended: Ended) -> list[str]:
    """Say what is wrong with how it ended."""
    if ended.hung:
        return ["it hangs"]
    problems = []
    allowed = {0, 1, 2, *(-number for number in ended.signals)}
    allowed |= {128 + number for number in ended.signals if number != signal.SIGKILL}
    if ended.status not in allowed and not died_early(ended):
        problems.append(f"exit status {ended.status}")
    said = _said_by_us(ended.stderr)
    problems += [f"unclean: {word}" for word in _UNCLEAN if word in said and not _was_starting(ended)]
    lines = said.strip().splitlines()
    if ended.status in (1, 2) and not (lines and lines[-1].startswith("bpeflow: ")) and not _was_starting(ended):
        problems.append(f"exit status {ended.status} without a message of one line at the end")
    problems += [f"a process is left: {orphan}" for orphan in ended.orphans]
    problems += [f"left in /dev/shm: {name}" for name in ended.shared]
    allowed_left = _OF_KILLED.fullmatch if died_early(ended) else re.compile(r"(?!)").fullmatch
    problems += [f"left in TMPDIR: {name}" for name in ended.temporary if not allowed_left(name)]
    return problems


def _said_by_us(stderr: str) -> str:
    """What is left without the words of others, which other processes may have written between ours.

    Those of the interpreter, too, where it had no memory to begin or to end a thread with.
    """
    frames = _FRAME.findall(stderr)
    if frames and all("multiprocessing/" in frame or "/threading.py" in frame for frame in frames):
        return "\n".join(_OUR_LINE.findall(stderr))  # even in the middle of a line
    return _ARROW.sub("", _MULTIPROCESSING.sub("", _NO_THREAD.sub("", stderr)))


def _was_starting(ended: Ended) -> bool:
    frames = _FRAME.findall(ended.stderr)
    ours = [frame for frame in frames if "bpeflow/" in frame or "soaking/" in frame]
    return bool(ended.signals) and all(frame.endswith(_STARTING) for frame in ours)


def problems_of_folder(
    folder: Path,
    ended: Ended,
    rights: Sequence[Right],
    before: Mapping[str, bytes],
    damaged: Mapping[str, bytes] | None = None,
    scratch: Path | None = None,
) -> list[str]:
    """Say what is wrong with the run folder.

    `rights`: what it may hold at the end: several, where the input was changed meanwhile. `before`: what was in it
    before the run, which stays if the run does not end well. `damaged`: files that we damaged ourselves.
    """
    found, before = (_mended(files, rights, damaged or {}) for files in (files_of(folder), before))
    problems = [] if died_early(ended) or _never_came(found, before) else _leftovers(folder, scratch)
    if ended.status == 0:
        return problems + _problems_of_result(found, rights)
    problems += _problems_of_unfinished(found, before, rights, damaged or {})
    results, earlier = _results(found), _results(before)
    if results == earlier or any(results == right.files for right in rights):
        return problems
    if not {*found, *before} & {_DONE}:
        names = sorted(name for name in {*results, *earlier} if results.get(name) != earlier.get(name))
        return [*problems, f"it has not ended well, and what was there is not as it was: {names}"]
    wanted = [{name for name, data in results.items() if data == right.files.get(name)} for right in rights]
    theirs = {name for name, data in results.items() if data == earlier.get(name)}
    ours = max(wanted, key=len, default=set())
    if {*results} - ours - theirs:
        problems.append(f"neither what they were nor what they shall be: {sorted({*results} - ours - theirs)}")
    if ours - theirs and theirs - ours:
        problems.append(f"files of two runs: {sorted(ours - theirs)} and {sorted(theirs - ours)}")
    return problems


def _never_came(found: Mapping[str, bytes], before: Mapping[str, bytes]) -> bool:
    """Whether it was over before it had the folder, in which a killed run, or we, have left something."""
    if ".lock" in before:
        return found.get(".lock") == before[".lock"]
    return found == before and any(name.startswith("unfinished/") for name in before)


def _mended(files: Mapping[str, bytes], rights: Sequence[Right], damaged: Mapping[str, bytes]) -> dict[str, bytes]:
    """With the right counts, where damaged ones are among the results.

    They may be: their run was done but for names, or the damage is where nobody looks (the time in a zip file).
    """
    counts = files.get("counts.npz")
    if counts is None or counts != damaged.get("counts.npz"):
        return {**files}
    return {**files, "counts.npz": next((right.files["counts.npz"] for right in rights if right.files), b"")}


def _results(found: Mapping[str, bytes]) -> dict[str, bytes]:
    """What runs that are finished have left."""
    return {name: data for name, data in found.items() if not _UNFINISHED.match(name)}


def _problems_of_unfinished(
    found: Mapping[str, bytes], before: Mapping[str, bytes], rights: Sequence[Right], damaged: Mapping[str, bytes]
) -> list[str]:
    counts = found.get("unfinished/counts.npz")
    known = [
        before.get("unfinished/counts.npz"),
        damaged.get("counts.npz"),
        *(r.files.get("counts.npz") for r in rights),
    ]
    return [] if counts in (None, *known) else ["unfinished/counts.npz is not what it shall be"]


def _leftovers(folder: Path, scratch: Path | None) -> list[str]:
    left = [path.relative_to(folder) for path in folder.rglob(".*")] if folder.exists() else []
    elsewhere = [path.name for path in scratch.iterdir()] if scratch else []
    problems = [f"left: {name}" for name in left] + [f"left in scratch_dir: {name}" for name in elsewhere]
    unfinished = folder / "unfinished"
    files = [path.relative_to(unfinished).as_posix() for path in unfinished.rglob("*") if path.is_file()]
    problems += [f"left: unfinished/{name}" for name in files if not _TO_GO_ON_WITH.fullmatch(name)]
    goes_on = {"segments/manifest.json", "merges.partial"} & {*files} or {"counts.npz", "run.json"} <= {*files}
    if unfinished.exists() and not goes_on:
        problems.append("left: unfinished/, with nothing to go on with")
    return problems


def _problems_of_result(found: Mapping[str, bytes], rights: Sequence[Right]) -> list[str]:
    if any(not right.error and right.files == found for right in rights):
        return []
    if all(right.error for right in rights):
        return [f"it ended well, but must fail: {rights[0].error}"]
    right = next(right for right in rights if not right.error)
    names = sorted(name for name in {*found, *right.files} if found.get(name) != right.files.get(name))
    states = [
        name + (" is missing" if name not in found else " is too many" if name not in right.files else " is wrong")
        for name in names
    ]
    return [f"wrong result: {', '.join(states)}"]
