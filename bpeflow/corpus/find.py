"""Finding the files of a corpus from the paths, globs, folders, lists and URLs that the user names."""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase, translate
from pathlib import Path, PurePath
from typing import Any, Literal

from bpeflow._util.extras import load_extra
from bpeflow._util.text import InvalidUtf8Policy, short_repr
from bpeflow.corpus.chunk import CorpusFile
from bpeflow.corpus.formats.content import (
    START_BYTES,
    check_content,
    detect_compression,
    is_json_lines,
    warn_json_lines,
    without_compression_suffix,
)
from bpeflow.corpus.formats.stream import STDIN, Format, StreamFile, StreamTask, convert_errors, standard_input
from bpeflow.errors import CorpusError

InputFormat = Literal["auto", "text", "jsonl", "parquet"]
_FORMATS: dict[str, Format] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:(//|:)")
_MATCHES_NOTHING = r"(?!)"

#: The most bytes of a file's name, on all common file systems, and of an input.
_LONGEST_NAME, _LONGEST_INPUT = 255, 4000

#: The remedy for text in place of a path.
_TEXT_REMEDY = "give the name of a file, or in Python an iterable of documents, such as iter([text, ...])"


@dataclass(frozen=True, slots=True)
class InputRules:
    """How to read the inputs of one source.

    Attributes:
        exclude: globs of files to leave out.
        format: the format of all inputs; ``auto`` goes by the ends of their names.
        source: number of the source.
        sampled: whether a sample is drawn from the source, in which case all of it is read as a stream.
        invalid_utf8: how to handle input that is not UTF-8. Only under ``error`` is a file of another format an error.
    """

    exclude: Sequence[str] = ()
    format: InputFormat = "auto"
    source: int = 0
    sampled: bool = False
    invalid_utf8: InvalidUtf8Policy = "error"


def find_inputs(inputs: Sequence[str | Path], rules: InputRules) -> list[CorpusFile | StreamTask]:
    """Find the inputs of a source: plain text as files that can be divided, everything else as streams.

    An input is anything that `find_files` accepts, or

    * ``@list.txt``: a file that lists inputs, one per line or, as ``find -print0`` writes them, each followed by a zero
      byte. They are treated as if named directly, and relative paths are relative to the current folder.
    * ``-``: standard input.
    * a URL that fsspec supports, such as ``s3://bucket/folder``, of a file, a folder or a glob.

    Returns:
        The local files sorted by path, then standard input, then the URLs, sorted.

    Raises:
        CorpusError: an input does not exist, cannot be read, needs a library that is not installed, or has a format
            that is recognised and cannot be read as it is (see `check_content`).
    """
    entries = [entry for named in inputs for entry in listed_inputs(named)]
    urls = [str(entry) for entry in entries if _is_url(entry)]
    stdin = any(str(entry) == STDIN for entry in entries)
    paths = [entry for entry in entries if not _is_url(entry) and str(entry) != STDIN]
    found: list[CorpusFile | StreamFile] = []
    if paths or not entries:
        found += _classify(find_files(paths, rules.exclude), rules)
    if stdin:
        standard_input()  # raises if it is closed
        guessed = rules.format == "auto"
        found.append(StreamFile(STDIN, None, _format_of(STDIN, rules), "stdin", rules.source, guessed=guessed))
    found += _find_urls(urls, rules)
    if rules.sampled:
        return [StreamTask(tuple(_as_stream(file) for file in found), sampled=True)]
    return [file if isinstance(file, CorpusFile) else StreamTask((file,)) for file in found]


def listed_inputs(entry: str | Path) -> Iterator[str | Path]:
    """Yield the inputs named in a list (``@list.txt``); yield any other input unchanged.

    Raises:
        CorpusError: the list cannot be read or is empty.
    """
    text = str(entry)
    _check_is_path(text)
    if not text.startswith("@") or Path(text).exists():
        yield entry
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
            _check_is_path(listed)
            yield listed


def _check_is_path(text: str) -> None:
    """Raise `CorpusError` for text in place of a path or URL: with several lines, or too long, and nothing's name."""
    if os.path.lexists(text):
        return
    longest = max(len(name.encode(errors="surrogatepass")) for name in text.split("/"))
    too_long = len(text) > _LONGEST_INPUT or (longest > _LONGEST_NAME and not _URL.match(text))
    if too_long or "\n" in text or "\0" in text:
        raise CorpusError(f"the input {short_repr(text)} looks like text, not like a path: {_TEXT_REMEDY}")


def _is_url(entry: str | Path) -> bool:
    return isinstance(entry, str) and _URL.match(entry) is not None and not os.path.lexists(entry)


def _format_of(name: str, rules: InputRules) -> Format:
    if rules.format != "auto":
        return rules.format
    return _FORMATS.get(PurePath(without_compression_suffix(name)).suffix.lower(), "text")


def _classify(files: Iterable[CorpusFile], rules: InputRules) -> Iterator[CorpusFile | StreamFile]:
    """Yield plain text unchanged and other local files as streams, after a look at the first bytes of each."""
    json_lines = []
    for file in files:
        file = replace(file, source=rules.source)
        file_format = _format_of(file.path.name, rules)
        start = _read_start(file.path)
        compressed = detect_compression(start) is not None
        if file_format != "parquet" and not compressed and rules.invalid_utf8 == "error":
            check_content(start, str(file.path))
        if file_format == "text" and not compressed:
            if rules.format == "auto" and is_json_lines(start):
                json_lines.append(str(file.path))
            yield file
        else:
            yield replace(_as_stream(file), format=file_format, guessed=rules.format == "auto")
    warn_json_lines(json_lines)


def _read_start(path: Path) -> bytes:
    try:
        with path.open("rb", buffering=0) as stream:
            return stream.read(START_BYTES)
    except OSError as error:
        raise CorpusError(f"cannot read the input {path}: {error.strerror}") from error


def _as_stream(file: CorpusFile | StreamFile) -> StreamFile:
    if not isinstance(file, CorpusFile):
        return file
    return StreamFile(str(file.path), file.size, source=file.source, modified=file.modified, inode=file.inode)


# ---- local files ----


def find_files(inputs: Sequence[str | Path], exclude: Sequence[str] = ()) -> list[CorpusFile]:
    """Find the local files that `inputs` name and `exclude` does not.

    An input is one of

    * a file, even if its name contains glob characters;
    * a folder: all regular files in it, at any depth;
    * a glob: the regular files that it matches. Folders that it matches are not searched: ``data/*`` finds one level,
      ``data/**`` finds all. ``**`` matches any number of folders, including none.

    ``~`` is the home folder. As in the shell, hidden files and folders (``.git``) are included only if they are named.
    As in `os.walk`, links to folders are not followed when searching downwards (so loops do no harm), while links to
    files are. Two paths that lead to the same file through links count once, under the first path.

    An `exclude` pattern must match the whole path, as named or made absolute. ``*`` in it matches any characters,
    including ``/``: ``**/site-packages/**``, ``*.log``, ``/data/old/*``.

    Returns:
        The files sorted by path, each once, however often it is named.

    Raises:
        CorpusError: an input does not exist, is neither a file nor a folder, or cannot be read; a glob or a folder has
            no files; or `exclude` leaves no file.
    """
    if not inputs:
        raise CorpusError("no input is given; name at least one file, folder or glob")
    named = [path for entry in inputs for path in _expand(_expand_home(entry))]
    excluded = _compile_excludes(exclude)
    kept = sorted(p for p in set(named) if not (excluded.match(str(p)) or excluded.match(str(p.absolute()))))
    if not kept:
        raise CorpusError(f"all {len(named)} input files are excluded by {', '.join(map(repr, exclude))}; exclude less")
    by_real_path: dict[str, CorpusFile] = {}
    for path in kept:
        by_real_path.setdefault(os.path.realpath(path), _corpus_file(path))
    return list(by_real_path.values())


def _expand_home(entry: str | Path) -> Path:
    try:
        return Path(entry).expanduser()
    except RuntimeError as error:  # ~user, where no such user exists
        raise CorpusError(f"cannot find {entry}: {error}") from None


def _expand(path: Path) -> list[Path]:
    """Return the files of an input. Files found in a folder or by a glob are regular; others may not be."""
    if path.is_dir():
        files = list(_walk(path))
        if not files:
            raise CorpusError(f"the input folder {path} contains no files (hidden files are skipped)")
        return files
    if path.exists():
        return [path]
    if glob.has_magic(str(path)):
        files = list(_expand_glob(path))
        if not files:
            raise CorpusError(f"the input {path} matches no file; check the pattern and the current folder")
        return files
    hint = f"; if it is text, {_TEXT_REMEDY}" if " " in str(path) else ""
    raise CorpusError(f"the input {path} does not exist; check the path and the current folder ({Path.cwd()}){hint}")


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
    """Yield every regular file in a folder at any depth, except hidden files and the content of linked folders."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    yield from _walk(folder / entry.name)
                elif entry.is_file() or _is_dangling(entry):  # a dangling link is an error later, unless excluded
                    yield folder / entry.name
    except OSError as error:
        raise CorpusError(f"cannot read the folder {folder} ({error.strerror}); change its mode or move it") from error


def _is_dangling(entry: os.DirEntry[str]) -> bool:
    return entry.is_symlink() and not Path(entry).exists()


def _compile_excludes(exclude: Sequence[str]) -> re.Pattern[str]:
    patterns = [translate(str(Path(pattern).expanduser())) for pattern in exclude]
    return re.compile("|".join(patterns) if patterns else _MATCHES_NOTHING)


def _corpus_file(path: Path) -> CorpusFile:
    try:
        status = path.stat()
    except OSError as error:
        raise CorpusError(f"cannot read the input {path}: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        raise CorpusError(
            f"the input {path} is not a regular file (a device, pipe or socket); save its content to a file first"
        )
    if not os.access(path, os.R_OK):
        raise CorpusError(f"the input {path} is not readable for this user; change its mode or exclude it")
    return CorpusFile(path, status.st_size, status.st_mtime_ns, status.st_ino)


# ---- URLs ----


def _find_urls(urls: Iterable[str], rules: InputRules) -> list[StreamFile]:
    excluded = re.compile("|".join(map(translate, rules.exclude)) if rules.exclude else _MATCHES_NOTHING)
    found: dict[str, StreamFile] = {}
    for url in urls:
        for name, size in _expand_url(url):
            if not excluded.match(name):
                file_format = _format_of(name.partition("?")[0], rules)
                found[name] = StreamFile(name, size, file_format, "url", rules.source, guessed=rules.format == "auto")
    if urls and not found:
        raise CorpusError(f"all files of {', '.join(urls)} are excluded; exclude less")
    return [found[name] for name in sorted(found)]


def _expand_url(url: str) -> list[tuple[str, int | None]]:
    """Return the names and sizes of the files that a URL names."""
    core = load_extra("fsspec.core", "fsspec", f"URLs such as {url}")
    with convert_errors(StreamFile(url, None, location="url")):
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
