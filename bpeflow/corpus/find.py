"""Finding the files of a corpus from the paths, globs, folders, lists and URLs that the user names."""

from __future__ import annotations

import errno
import glob
import logging
import os
import re
import stat
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase, translate
from pathlib import Path, PurePath
from typing import Any

from bpeflow._util.machine import load_extra
from bpeflow._util.text import InputFormat, InvalidUtf8Policy, format_count, short_repr
from bpeflow.corpus.compression import without_compression_suffix
from bpeflow.corpus.files import (
    STDIN,
    Format,
    InputFile,
    Location,
    convert_errors,
    open_blocks,
    standard_input,
)
from bpeflow.errors import CorpusError, CorpusNotFoundError

_FORMATS: dict[str, Format] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:(//|:)")

#: The order of inputs, unless they stay in the order in which they are named.
_ORDER: tuple[Location, ...] = ("file", "stdin", "url")

#: What an input expands to: its location, its path, URL or ``-``, and its size if known.
_Found = tuple[Location, Any, int | None]

#: The most characters of a URL.
_LONGEST_URL = 4000

#: The remedy for text in place of a path.
_TEXT_REMEDY = "give the name of a file, or in Python an iterable of documents, such as iter([text, ...])"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class InputRules:
    """How to read the inputs of one source.

    Attributes:
        exclude: globs of files to leave out.
        format: the format of all inputs; ``auto`` goes by the ends of their names.
        source: number of the source.
        invalid_utf8: how to handle input that is not UTF-8, and files of other formats (see `Blocks.check`).
        in_order: whether inputs stay in the order in which they are named.
    """

    exclude: Sequence[str] = ()
    format: InputFormat = "auto"
    source: int = 0
    invalid_utf8: InvalidUtf8Policy = "error"
    in_order: bool = False


def find_inputs(inputs: Sequence[str | Path], rules: InputRules) -> list[InputFile]:
    """Find the inputs of a source.

    An input is one of

    * a file, even if its name contains glob characters;
    * a folder: all regular files in it, at any depth;
    * a glob: the regular files that it matches. Folders that it matches are not searched: ``data/*`` finds one level,
      ``data/**`` finds all. ``**`` matches any number of folders, including none.
    * ``@list.txt``: a file that lists inputs, one per line or, as ``find -print0`` writes them, each followed by a zero
      byte. They are treated as if named directly, and relative paths are relative to the current folder.
    * ``-``: standard input.
    * a URL that fsspec supports, such as ``s3://bucket/folder``, of a file, a folder or a glob.

    ``~`` is the home folder. As in the shell, hidden files and folders (``.git``) are included only if they are named.
    So are the folders of training runs, which have vocabularies and reports, and no text of the corpus.
    As in `os.walk`, links to folders are not followed when searching downwards (so loops do no harm), while links to
    files are. Two paths that lead to the same file through links count once, under the first path.

    A pattern in `exclude` must match the whole path, as named or made absolute. ``*`` in it matches any characters,
    including ``/``: ``**/site-packages/**``, ``*.log``, ``/data/old/*``.

    Returns:
        The local files sorted by path, then standard input, then the URLs, sorted. With `in_order`, they are in the
        order in which they are named, and only the files of each folder or glob are sorted. Each appears once, however
        often it is named.

    Raises:
        CorpusError: an input does not exist, is neither a file nor a folder, cannot be read, needs a library that is
            not installed, or has a format that is recognised and cannot be read as it is (see `Blocks.check`); a
            glob or a folder has no files; or `exclude` leaves no file.
    """
    if not inputs:
        raise CorpusError("no input is given; name at least one file, folder or glob")
    named = [found for entry in inputs for path in _listed(entry) for found in _expand_input(path)]
    kept = _without_excluded(named, rules.exclude) if rules.exclude else named
    if not rules.in_order:
        kept.sort(key=lambda found: (_ORDER.index(found[0]), found[1]))
    files: dict[str, InputFile] = {}
    for location, path, size in kept:
        name = str(path)
        key = os.path.realpath(name) if location == "file" else name
        if key not in files:
            files[key] = _input_file(name, location, size, rules)
    return [*files.values()]


def _without_excluded(named: list[_Found], exclude: Sequence[str]) -> list[_Found]:
    patterns = (pattern if _URL.match(pattern) else str(Path(pattern).expanduser()) for pattern in exclude)
    excluded = re.compile("|".join(map(translate, patterns)))
    kept = [
        found
        for found in named
        if found[1] == STDIN or not (excluded.match(str(found[1])) or excluded.match(str(Path(found[1]).absolute())))
    ]
    if not kept:
        raise CorpusError(f"all {len(named)} input files are excluded by {', '.join(map(repr, exclude))}; exclude less")
    return kept


def _listed(entry: str | Path) -> Iterator[str]:
    """Yield the inputs named in a list (``@list.txt``); yield any other input unchanged."""
    text = str(entry)
    check_is_path(text)
    if not text.startswith("@") or Path(text).exists():
        yield text
        return
    path = Path(text[1:]).expanduser()
    try:
        if path.is_char_device() or path.is_block_device():  # may be endless, unlike a pipe
            raise CorpusError(f"the list of inputs {path} is a device; save its content to a file first")
        data = path.read_bytes()
    except OSError as error:
        raise CorpusError(f"cannot read the list of inputs {path}: {error.strerror}") from error
    names = data.split(b"\0") if b"\0" in data else [line.removesuffix(b"\r") for line in data.split(b"\n")]
    if not any(names):
        raise CorpusError(f"the list of inputs {path} is empty; it must name one input per line")
    for name in names:
        if name.strip():
            listed = os.fsdecode(name)
            check_is_path(listed)
            yield listed


def check_is_path(text: str) -> None:
    """Raise `CorpusError` for text in place of a path or URL: with several lines, or too long, and nothing's name."""
    try:
        os.lstat(text)
    except (OSError, ValueError) as error:
        unusable = not isinstance(error, OSError) or error.errno == errno.ENAMETOOLONG
        if "\n" in text or (unusable and not (_URL.match(text) and len(text) < _LONGEST_URL)):
            raise CorpusError(
                f"the input {short_repr(text)} looks like text, not like a path: {_TEXT_REMEDY}"
            ) from None


def _expand_input(entry: str) -> list[_Found]:
    """Return the files of an input, sorted by name."""
    if entry == STDIN:
        standard_input()  # raises if it is closed
        return [("stdin", STDIN, None)]
    if _URL.match(entry) and not os.path.lexists(entry):
        return [("url", name, size) for name, size in sorted(_expand_url(entry))]
    path = Path(os.path.expanduser(entry))  # noqa: PTH111 -- Path.expanduser fails for ~user where there is no such user
    return [("file", path, None) for path in sorted(_expand(path))]


def _input_file(name: str, location: Location, size: int | None, rules: InputRules) -> InputFile:
    """Return a file with its format and, of a local file, its status, after a look at its first bytes."""
    guessed = rules.format == "auto"
    if rules.format == "auto":
        path = name.partition("?")[0] if location == "url" else name
        file_format = _FORMATS.get(PurePath(without_compression_suffix(path)).suffix.lower(), "text")
    else:
        file_format = rules.format
    file = InputFile(name, size, file_format, location, rules.source, guessed=guessed)
    if location != "file":
        return file
    try:
        status = os.stat(name)  # noqa: PTH116
    except OSError as error:
        raise CorpusError(f"cannot read the input {name}: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        raise CorpusError(
            f"the input {name} is not a regular file (a device, pipe or socket); save its content to a file first"
        )
    file = replace(file, size=status.st_size, modified=status.st_mtime_ns, inode=status.st_ino)
    if file_format == "parquet":
        return file
    with open_blocks(file) as blocks:
        blocks.check(rules.invalid_utf8)
        return replace(file, plain=True) if file_format == "text" and blocks.compression is None else file


# ---- local files ----


def _expand(path: Path) -> list[Path]:
    """Return the files of an input. Files found in a folder or by a glob are regular files; a named one may be any."""
    if path.is_dir():
        files = list(_walk(path))
        if not files:
            raise CorpusError(f"the input folder {path} contains no files (hidden files and training runs are skipped)")
        return files
    if path.exists():
        return [path]
    if glob.has_magic(str(path)):
        files = list(_expand_glob(path))
        if not files:
            raise CorpusError(
                f"the input {path} matches no file; check the pattern and the current folder ({Path.cwd()})"
            )
        return files
    hint = f"; if it is text, {_TEXT_REMEDY}" if " " in str(path) else ""
    raise CorpusNotFoundError(
        f"the input {path} does not exist; check the path and the current folder ({Path.cwd()}){hint}"
    )


def _expand_glob(path: Path) -> Iterator[Path]:
    """Yield the regular files that a glob matches.

    From the first ``**`` on, this searches on its own: `glob.glob` would follow links to folders there, along ever
    longer paths where links form a loop.
    """
    depth = path.parts.index("**") if "**" in path.parts else len(path.parts)
    head, tail = Path(*path.parts[:depth]), path.parts[depth:]
    for found in map(Path, glob.iglob(str(head))):  # noqa: PTH207 (Path.glob would match hidden files, too)
        if tail and found.is_dir():
            yield from (file for file in _walk(found) if _matches_glob(file.relative_to(found).parts, tail))
        elif not tail and found.is_file():
            yield found


def _matches_glob(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return whether the parts of a path match the parts of a glob."""
    if not pattern or not names:
        return not names and all(part == "**" for part in pattern)
    if pattern[0] == "**":
        return _matches_glob(names, pattern[1:]) or _matches_glob(names[1:], pattern)
    return fnmatchcase(names[0], pattern[0]) and _matches_glob(names[1:], pattern[1:])


def _walk(folder: Path) -> Iterator[Path]:
    """Yield every regular file in a folder at any depth.

    Exceptions are hidden files, the content of linked folders, and training runs below the folder.
    """
    runs: list[Path] = []

    def refuse(error: OSError) -> None:
        name = error.filename or folder
        raise CorpusError(f"cannot read the folder {name} ({error.strerror}); change its mode or move it") from error

    for parent, folders, names in os.walk(folder, onerror=refuse):
        if Path(parent) != folder and _is_run({*folders, *names}):
            runs.append(Path(parent))
            folders.clear()
            continue
        folders[:] = [name for name in folders if not name.startswith(".")]
        for path in (Path(parent, name) for name in names if not name.startswith(".")):
            if path.is_file() or not path.exists():  # a dangling link is an error later, unless excluded
                yield path
    if runs:
        log.info("%s: %s left out, such as %s", folder, format_count(len(runs), "training run"), min(runs))


def _is_run(names: Collection[str]) -> bool:
    """Return whether a folder with these names is what a training run leaves, finished or not (`run_dir.layout`)."""
    is_finished = "run.json" in names and ("counts.npz" in names or "bpeflow.json" in names)
    return is_finished or (".lock" in names and "unfinished" in names)


# ---- URLs ----


def _expand_url(url: str) -> list[tuple[str, int | None]]:
    """Return the names and sizes of the files that a URL names."""
    core = load_extra("fsspec.core", "fsspec", f"URLs such as {url}")
    with convert_errors(InputFile(url, None, location="url")):
        system, path = core.url_to_fs(url)
        try:
            details = system.info(path)
        except FileNotFoundError as error:
            if not glob.has_magic(url):
                cause = f" ({error.__cause__})" if error.__cause__ is not None else ""
                raise CorpusError(f"the input {url} does not exist{cause}; check the address") from error
            matches = system.glob(path, detail=True)
        else:
            if details.get("type") != "directory":
                return [(url, details.get("size"))]
            matches = system.find(path, detail=True)
        found = [
            (system.unstrip_protocol(name), details.get("size"))
            for name, details in matches.items()
            if details.get("type") != "directory" and not _is_hidden(name, path)
        ]
    if not found:
        raise CorpusError(f"the input {url} contains or matches no files (hidden files are skipped)")
    return found


def _is_hidden(name: Any, root: str) -> bool:
    below = str(name).removeprefix(root.partition("*")[0])
    return any(part.startswith(".") for part in below.split("/"))
