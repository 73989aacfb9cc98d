"""The files of a corpus, found from the paths, globs and folders that the user names."""

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
from bpeflow.corpus.chunk import CorpusFile
from bpeflow.corpus.formats.compression import MAGIC_BYTES, compression_of, without_compression_suffix
from bpeflow.corpus.formats.stdin import standard_input
from bpeflow.corpus.formats.stream import STDIN, Format, StreamFile, StreamTask, reading
from bpeflow.errors import CorpusError

InputFormat = Literal["auto", "text", "jsonl", "parquet"]
_FORMATS: dict[str, Format] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:(//|:)")


@dataclass(frozen=True, slots=True)
class InputRules:
    """How to take the inputs of a source.

    Attributes:
        exclude: globs of files to leave out.
        format: of all of them; ``auto`` goes by the endings of their names.
        source: the number of the source.
        sampled: whether a sample is drawn of it, so that all of it is read as a stream.
    """

    exclude: Sequence[str] = ()
    format: InputFormat = "auto"
    source: int = 0
    sampled: bool = False


def find_inputs(inputs: Sequence[str | Path], rules: InputRules) -> list[CorpusFile | StreamTask]:
    """What the inputs of a source name: plain text as files to be divided, all else as streams.

    An input is what `find_files` takes, or

    * ``@list.txt``: a file that names inputs, one in each line (or, as ``find -print0`` writes them, with a zero byte
      behind each), as if they stood here; relative paths are relative to the current folder;
    * ``-``: standard input;
    * a URL that fsspec knows, such as ``s3://bucket/folder``; of a file, a folder, or a glob.

    The files of this machine come first, sorted by path, then standard input, then URLs, sorted.

    Raises `CorpusError` for what is not there, cannot be read, or needs a library that is not here.
    """
    entries = [entry for named in inputs for entry in listed_inputs(named)]
    urls = [str(entry) for entry in entries if _is_url(entry)]
    stdin = any(str(entry) == STDIN for entry in entries)
    paths = [entry for entry in entries if not _is_url(entry) and str(entry) != STDIN]
    found: list[CorpusFile | StreamFile] = []
    if paths or not entries:
        found += [_classified(replace(file, source=rules.source), rules) for file in find_files(paths, rules.exclude)]
    if stdin:
        standard_input()
        found.append(StreamFile(STDIN, None, _format(STDIN, rules), "stdin", rules.source))
    found += _remote_files(urls, rules)
    if rules.sampled:
        return [StreamTask(tuple(_as_stream(file) for file in found), sampled=True)]
    return [file if isinstance(file, CorpusFile) else StreamTask((file,)) for file in found]


def listed_inputs(entry: str | Path) -> Iterator[str | Path]:
    """The inputs that an entry stands for: those of a list, or itself."""
    text = str(entry)
    if not text.startswith("@") or Path(text).exists():
        yield entry
        return
    path = Path(text[1:]).expanduser()
    try:
        if path.is_char_device() or path.is_block_device():  # which may have no end; a pipe has one
            raise CorpusError(f"the list of inputs {path} is a device; save its content first")
        data = path.read_bytes()
    except OSError as error:
        raise CorpusError(f"cannot read the list of inputs {path}: {error.strerror}") from error
    names = data.split(b"\0") if b"\0" in data else [line.removesuffix(b"\r") for line in data.split(b"\n")]
    if not any(names):
        raise CorpusError(f"the list of inputs {path} is empty; it must name one in each line")
    yield from (os.fsdecode(name) for name in names if name.strip())


def _is_url(entry: str | Path) -> bool:
    return isinstance(entry, str) and _URL.match(entry) is not None and not Path(entry).exists()


def _format(name: str, rules: InputRules) -> Format:
    if rules.format != "auto":
        return rules.format
    return _FORMATS.get(PurePath(without_compression_suffix(name)).suffix.lower(), "text")


def _classified(file: CorpusFile, rules: InputRules) -> CorpusFile | StreamFile:
    """A file of this machine as what it is: plain text stays a file."""
    kind = _format(file.path.name, rules)
    if kind == "text" and not _is_compressed(file.path):
        return file
    return replace(_as_stream(file), format=kind)


def _is_compressed(path: Path) -> bool:
    try:
        with path.open("rb", buffering=0) as stream:
            return compression_of(stream.read(MAGIC_BYTES)) is not None
    except OSError as error:
        raise CorpusError(f"cannot read the input {path}: {error.strerror}") from error


def _as_stream(file: CorpusFile | StreamFile) -> StreamFile:
    if not isinstance(file, CorpusFile):
        return file
    return StreamFile(str(file.path), file.size, source=file.source, modified=file.modified)


# ---- URLs ----


def _remote_files(urls: Iterable[str], rules: InputRules) -> list[StreamFile]:
    excluded = re.compile("|".join(map(translate, rules.exclude)) if rules.exclude else r"(?!)")
    found: dict[str, StreamFile] = {}
    for url in urls:
        for name, size in _expanded(url):
            if not excluded.match(name):
                found[name] = StreamFile(name, size, _format(name.partition("?")[0], rules), "url", rules.source)
    if urls and not found:
        raise CorpusError(f"all files of {', '.join(urls)} are excluded; exclude less")
    return [found[name] for name in sorted(found)]


def _expanded(url: str) -> list[tuple[str, int | None]]:
    """The names and sizes of the files that a URL names."""
    core = load_extra("fsspec.core", "fsspec", f"URLs such as {url}")
    with reading(StreamFile(url, None, place="url")):
        system, path = core.url_to_fs(url)
        try:
            details = system.info(path)
        except FileNotFoundError as error:
            if not glob.has_magic(url):
                why = f" ({error.__cause__})" if error.__cause__ is not None else ""
                raise CorpusError(f"the input {url} does not exist{why}; check the address") from error
            matches = system.glob(path, detail=True)
        else:
            if details.get("type") != "directory":
                return [(url, details.get("size"))]
            matches = system.find(path, detail=True)
        found = [
            (system.unstrip_protocol(name), details.get("size"))
            for name, details in matches.items()
            if details.get("type") != "directory" and not _hidden(name, path)
        ]
    if not found:
        raise CorpusError(f"the input {url} holds, or matches, no file (hidden ones are passed over)")
    return found


def _hidden(name: Any, root: str) -> bool:
    below = str(name).removeprefix(root.partition("*")[0])
    return any(part.startswith(".") for part in below.split("/"))


def find_files(inputs: Sequence[str | Path], exclude: Sequence[str] = ()) -> list[CorpusFile]:
    """The files that ``inputs`` name and ``exclude`` does not, sorted by path, each once however often it is named.

    An input is one of

    * a file, even if its name holds glob characters;
    * a folder: all regular files in it and below;
    * a glob: the regular files that it matches (the folders that it matches are not entered: ``data/*`` has one level,
      ``data/**`` all). ``**`` stands for any number of folders, none included.

    ``~`` is the home folder. As in the shell, hidden files and folders (``.git``) belong only if they are named;
    as with ``os.walk``, links to folders are not followed when searching downwards (so loops do no harm), links to
    files are. Two paths that lead to one file through links count once, under the first path.

    An ``exclude`` pattern must match the whole path, as named or made absolute, and ``*`` in it stands for any
    characters, ``/`` too: ``**/site-packages/**``, ``*.log``, ``/data/old/*``.

    Raises CorpusError for an input that does not exist, is neither file nor folder or cannot be read, for a glob or a
    folder without files, and if nothing is left after ``exclude``.
    """
    if not inputs:
        raise CorpusError("no input is given; name at least one file, folder or glob")
    named = [path for entry in inputs for path in _expand(_at_home(entry))]
    excluded = _compile_excludes(exclude)
    kept = sorted(p for p in set(named) if not (excluded.match(str(p)) or excluded.match(str(p.absolute()))))
    if not kept:
        raise CorpusError(f"all {len(named)} input files are excluded by {', '.join(map(repr, exclude))}; exclude less")
    by_real_path: dict[str, CorpusFile] = {}
    for path in kept:
        by_real_path.setdefault(os.path.realpath(path), _corpus_file(path))
    return list(by_real_path.values())


def _at_home(entry: str | Path) -> Path:
    try:
        return Path(entry).expanduser()
    except RuntimeError as error:  # ~somebody who is not known here
        raise CorpusError(f"cannot find {entry}: {error}") from None


def _expand(path: Path) -> list[Path]:
    """The files that one input names. Only those below a folder or in a glob are known to be regular files."""
    if path.is_dir():
        files = list(_walk(path))
        if not files:
            raise CorpusError(f"the input folder {path} holds no files (hidden ones are passed over)")
        return files
    if path.exists():
        return [path]
    if glob.has_magic(str(path)):
        files = list(_expand_glob(path))
        if not files:
            raise CorpusError(f"the input {path} matches no file; check the pattern and the current folder")
        return files
    raise CorpusError(f"the input {path} does not exist; check the path and the current folder ({Path.cwd()})")


def _expand_glob(path: Path) -> Iterator[Path]:
    """The regular files that a glob matches.

    ``glob.glob`` would follow links to folders under ``**``, for ever longer paths where two of them make loops; so
    from the first ``**`` on, the search is ours.
    """
    depth = path.parts.index("**") if "**" in path.parts else len(path.parts)
    head, tail = Path(*path.parts[:depth]), path.parts[depth:]
    for found in map(Path, glob.iglob(str(head))):
        if tail and found.is_dir():
            yield from (file for file in _walk(found) if _matches(file.relative_to(found).parts, tail))
        elif not tail and found.is_file():
            yield found


def _matches(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the parts of a path match the parts of a glob."""
    if not pattern or not names:
        return not names and all(part == "**" for part in pattern)
    if pattern[0] == "**":
        return _matches(names, pattern[1:]) or _matches(names[1:], pattern)
    return fnmatchcase(names[0], pattern[0]) and _matches(names[1:], pattern[1:])


def _walk(folder: Path) -> Iterator[Path]:
    """Every regular file in a folder and below, hidden ones and linked folders left out."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    yield from _walk(folder / entry.name)
                elif entry.is_file() or _dangles(entry):  # a dangling link is an error, unless it is excluded
                    yield folder / entry.name
    except OSError as error:
        raise CorpusError(f"cannot read the folder {folder} ({error.strerror}); change its mode or move it") from error


def _dangles(entry: os.DirEntry[str]) -> bool:
    return entry.is_symlink() and not Path(entry).exists()


def _compile_excludes(exclude: Sequence[str]) -> re.Pattern[str]:
    patterns = [translate(str(Path(pattern).expanduser())) for pattern in exclude]
    return re.compile("|".join(patterns) if patterns else r"(?!)")  # `(?!)` matches nothing


def _corpus_file(path: Path) -> CorpusFile:
    try:
        status = path.stat()
    except OSError as error:
        raise CorpusError(f"cannot read the input {path}: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        raise CorpusError(f"the input {path} is not a regular file (a device, pipe or socket); save its content first")
    if not os.access(path, os.R_OK):
        raise CorpusError(f"the input {path} is not readable for this user; change its mode or exclude it")
    return CorpusFile(path, status.st_size, status.st_mtime_ns)
