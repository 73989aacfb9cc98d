"""What users name as input: files, folders, globs, lists of them, standard input, URLs."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import translate
from pathlib import Path, PurePath
from typing import Any, Literal

from bpeflow.corpus.compression import MAGIC_BYTES, compression_of, without_compression_suffix
from bpeflow.corpus.extras import load_extra
from bpeflow.corpus.files import CorpusFile, find_files
from bpeflow.corpus.standard_input import standard_input
from bpeflow.corpus.stream_reader import StreamTask
from bpeflow.corpus.streams import STDIN, Format, StreamFile, reading
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
