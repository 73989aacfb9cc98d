"""Judge how a run ended and what it left behind: only the right bytes or a clean error are acceptable."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from soaking.expected import Expected, files_of
from soaking.process import Ended

#: Output if a signal arrives in one of Python's callbacks, which ignores it.
_IGNORED_SIGNAL = re.compile(
    r"Exception ignored in: .*\n(Traceback \(most recent call last\):\n(  .*\n)*)?"
    r"KeyboardInterrupt.*(\n|$)"
)
_FRAME = re.compile(r'File "([^"]*)"')
_UNCLEAN = ("Traceback (most recent call last)", "Exception ignored in", "Fatal Python error", "Segmentation fault")
#: Modules that run before our signal handlers are set up.
_STARTING = ("bpeflow/__init__.py", "bpeflow/__main__.py", "soaking/impatient.py")
#: Temporary folders in which a process was killed while it checked that formats can be written.
_LEFT_IF_KILLED = re.compile(r"tmp.*")
_UNFINISHED = re.compile(r"unfinished/|\.lock|\.scratch-")
_RESUMABLE = re.compile(
    r"(first_stage/(unfinished/)?)?(segments/.*|merges\.partial|counts\.npz|(run|settings)\.json|monitor\.jsonl)"
    r"|first_stage/[^/]*|(.*/)?\.[^/]*"
)
#: The report of a run that is complete and is replacing the earlier files.
_DONE = "unfinished/done.json"


class VerdictError(Exception):
    """A run ended neither with the right result nor with a clean error."""


def how_it_ended(ended: Ended) -> str:
    """Describe how a process ended in a few words."""
    if ended.status < 0:
        return f"killed by {signal.Signals(-ended.status).name}"
    names = {0: "success", 1: "error, the run failed", 2: "error, refused", 130: "after SIGINT", 143: "after SIGTERM"}
    return names.get(ended.status, f"status {ended.status}")


def died_at_once(ended: Ended) -> bool:
    """Whether the process was ended by a signal, or by a library without memory, with no chance to clean up."""
    if ended.short_of_memory and ended.status not in (0, 1, 2):
        return True
    return -ended.status in ended.signals


def problems_of_end(ended: Ended) -> list[str]:
    """Return what is wrong with how a process ended.

    If it runs out of memory, any status and any output will do: libraries have their own ways to end a process.
    """
    if ended.hung:
        return ["the process hangs"]
    problems = [] if ended.short_of_memory and ended.status != 0 else _problems_of_words(ended)
    problems += [f"process left running: {orphan}" for orphan in ended.orphans]
    problems += [f"left in /dev/shm: {name}" for name in ended.shared]
    allowed_left = _LEFT_IF_KILLED.fullmatch if died_at_once(ended) else re.compile(r"(?!)").fullmatch
    problems += [f"left in TMPDIR: {name}" for name in ended.temporary if not allowed_left(name)]
    return problems


def _problems_of_words(ended: Ended) -> list[str]:
    """Return what is wrong with the exit status and the output."""
    problems = []
    allowed = {0, 1, 2, *(-number for number in ended.signals)}
    allowed |= {128 + number for number in ended.signals if number != signal.SIGKILL}
    if ended.status not in allowed:
        problems.append(f"unexpected exit status {ended.status}")
    output = _our_output(ended)
    problems += [f"unexpected output: {text}" for text in _UNCLEAN if text in output and not _was_starting(ended)]
    lines = output.strip().splitlines()
    if ended.status in (1, 2) and not (lines and lines[-1].startswith("bpeflow: ")) and not _was_starting(ended):
        problems.append(f"exit status {ended.status} without a one-line message at the end")
    return problems


def _our_output(ended: Ended) -> str:
    """Remove the output of signals that Python ignores in its callbacks."""
    return _IGNORED_SIGNAL.sub("", ended.stderr) if ended.signals else ended.stderr


def _was_starting(ended: Ended) -> bool:
    frames = _FRAME.findall(ended.stderr)
    ours = [frame for frame in frames if "bpeflow/" in frame or "soaking/" in frame]
    return bool(ended.signals) and all(frame.endswith(_STARTING) for frame in ours)


def problems_of_folder(
    folder: Path,
    ended: Ended,
    accepted: Sequence[Expected],
    before: Mapping[str, bytes],
    damaged: Mapping[str, bytes] | None = None,
    scratch: Path | None = None,
) -> list[str]:
    """Return what is wrong with the run folder.

    Args:
        folder: the run folder.
        ended: how the run ended.
        accepted: the results that it may have; several if the input was changed during the run.
        before: the contents of the folder before the run, which must remain if the run fails.
        damaged: files that the soak itself damaged.
        scratch: the scratch folder, which must be empty.
    """
    found, before = (_with_intact_counts(files, accepted, damaged or {}) for files in (files_of(folder), before))
    problems = [] if died_at_once(ended) or _never_locked(found, before) else _leftovers(folder, scratch)
    if ended.status == 0:
        return problems + _problems_of_result(found, accepted)
    problems += _problems_of_unfinished(found, before, accepted, damaged or {})
    results, earlier = _results(found), _results(before)
    if results == earlier or any(results == expected.files for expected in accepted):
        return problems
    if not {*found, *before} & {_DONE}:
        names = sorted(name for name in {*results, *earlier} if results.get(name) != earlier.get(name))
        return [*problems, f"the run failed, but results changed: {names}"]
    matching = [{name for name, data in results.items() if data == each.files.get(name)} for each in accepted]
    new = max(matching, key=len, default=set())
    old = {name for name, data in results.items() if data == earlier.get(name)}
    if {*results} - new - old:
        problems.append(f"neither the old nor the expected contents: {sorted({*results} - new - old)}")
    if new - old and old - new:
        problems.append(f"files of two runs: {sorted(new - old)} and {sorted(old - new)}")
    return problems


def _never_locked(found: Mapping[str, bytes], before: Mapping[str, bytes]) -> bool:
    """Whether the run ended before it locked the folder, which has leftovers of a killed run or of our damage."""
    if ".lock" in before:
        return found.get(".lock") == before[".lock"]
    return found == before and any(name.startswith("unfinished/") for name in before)


def _with_intact_counts(
    files: Mapping[str, bytes], accepted: Sequence[Expected], damaged: Mapping[str, bytes]
) -> dict[str, bytes]:
    """Replace damaged counts among the results by the expected ones.

    Damaged counts are acceptable there, for two reasons: their run was complete except for renaming its files, or the
    damage is in a part that is never read, such as the time in a zip file.
    """
    counts = files.get("counts.npz")
    if counts is None or counts != damaged.get("counts.npz"):
        return {**files}
    return {**files, "counts.npz": next((each.files["counts.npz"] for each in accepted if each.files), b"")}


def _results(found: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files of finished runs."""
    return {name: data for name, data in found.items() if not _UNFINISHED.match(name)}


def _problems_of_unfinished(
    found: Mapping[str, bytes], before: Mapping[str, bytes], accepted: Sequence[Expected], damaged: Mapping[str, bytes]
) -> list[str]:
    counts = found.get("unfinished/counts.npz")
    known = [
        before.get("unfinished/counts.npz"),
        damaged.get("counts.npz"),
        *(each.files.get("counts.npz") for each in accepted),
    ]
    return [] if counts in (None, *known) else ["unfinished/counts.npz has wrong contents"]


def _leftovers(folder: Path, scratch: Path | None) -> list[str]:
    left = [path.relative_to(folder) for path in folder.rglob(".*")] if folder.exists() else []
    elsewhere = [path.name for path in scratch.iterdir()] if scratch else []
    problems = [f"left: {name}" for name in left] + [f"left in scratch_dir: {name}" for name in elsewhere]
    unfinished = folder / "unfinished"
    files = [path.relative_to(unfinished).as_posix() for path in unfinished.rglob("*") if path.is_file()]
    problems += [f"left: unfinished/{name}" for name in files if not _RESUMABLE.fullmatch(name)]
    known = {"settings.json", "segments/manifest.json", "merges.partial"}
    resumable = known & {*files} or {"counts.npz", "run.json"} <= {*files}
    if unfinished.exists() and not resumable:
        problems.append("left: unfinished/ without anything to resume")
    return problems


def _problems_of_result(found: Mapping[str, bytes], accepted: Sequence[Expected]) -> list[str]:
    if any(not expected.error and expected.files == found for expected in accepted):
        return []
    if all(expected.error for expected in accepted):
        return [f"the run succeeded, but must fail: {accepted[0].error}"]
    expected = next(expected for expected in accepted if not expected.error)
    names = sorted(name for name in {*found, *expected.files} if found.get(name) != expected.files.get(name))
    states = [
        name + (" is missing" if name not in found else " is unexpected" if name not in expected.files else " is wrong")
        for name in names
    ]
    return [f"wrong result: {', '.join(states)}"]
