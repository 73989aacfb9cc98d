"""Random corpora: adversarial documents in random formats, in files with odd names, given in random ways."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, Literal

from bpeflow._util.delimiters import end_of_document
from soaking import from_tests

Kind = Literal["text", "jsonl", "parquet"]
BROKEN = (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"a\x80b", b"\xc0\xaf")
#: A file name with a line break, which splits a line-based list of files.
LINE_BREAKING = "f\nf"
#: File names that shells, globs, file lists and YAML could misinterpret. The last one is not UTF-8.
_STEMS = ("a", "b b", "[c]", "@d", "-e", LINE_BREAKING, 'it\'s "g"', "日本", "~h", "i*", "{stdlib", "#j: k", "\udcffl")
_WORDS = ("the", "of", "low", "lower", "newest", "widest", "naïve", "日本語", "it's", "42", "...", "e\u0301", "\x00")


@dataclass(frozen=True)
class Part:
    """A file of the corpus.

    Attributes:
        name: the file name.
        kind: the format.
        content: the uncompressed bytes, for text and JSON Lines.
        rows: the rows, for Parquet.
        compression: the suffix of the compression format, or empty.
        members: the number of compressed members (streams) in the file.
        row_group: rows per row group, for Parquet.
    """

    name: str
    kind: Kind
    content: bytes = b""
    rows: tuple[str | None, ...] = ()
    compression: str = ""
    members: int = 1
    row_group: int = 100


@dataclass(frozen=True)
class Corpus:
    """Files in a folder, and the settings that select them.

    Attributes:
        folder: the folder of the files.
        sources: the settings and the files of each source.
        settings: `input` or `sources`, and other settings that describe the files.
        plain: the same settings without standard input.
        stdin: the file to pass as standard input.
        size: the total size of the files in bytes.
    """

    folder: Path
    sources: list[tuple[dict[str, Any], list[Part]]]
    settings: dict[str, Any]
    plain: dict[str, Any]
    stdin: Path | None = None
    size: int = field(default=0)

    @property
    def parts(self) -> list[Part]:
        """The files of all sources."""
        return [part for _, parts in self.sources for part in parts]

    @property
    def paths(self) -> list[Path]:
        """The paths of all files."""
        return [self.folder / part.name for part in self.parts]


def make_corpus(choose: Random, folder: Path, settings: dict[str, Any], scale: int) -> Corpus:
    """Write a random corpus of about `scale` bytes that suits the given settings."""
    documents = _documents(choose, scale)
    if settings["special_tokens"]:
        documents = [_with_specials(choose, text, settings) for text in documents]
    broken = choose.random() < 0.25
    layout = choose.choices(("files", "folder", "glob", "list", "stdin", "sources"), (4, 4, 3, 3, 1, 3))[0]
    files = 1 if layout == "stdin" else choose.choice((1, 1, 2, 3, 7))
    kinds: tuple[Kind, ...] = ("text", "text", "jsonl") if layout == "stdin" else ("text", "text", "jsonl", "parquet")
    one_kind = choose.random() < 0.4
    kinds = (choose.choice(kinds),) if one_kind else kinds
    stems = choose.sample(_STEMS[:-1] if layout in ("files", "sources") else _STEMS, files)
    parts = [
        _part(choose, stem, choose.choice(kinds), documents[number::files], settings, broken)
        for number, stem in enumerate(stems)
    ]
    folder.mkdir(parents=True)
    for part in parts:
        write_part(folder, part, settings)
    return _select(choose, folder, layout, parts, kind=kinds[0] if one_kind else None)


def write_part(folder: Path, part: Part, settings: dict[str, Any]) -> None:
    """Write a file in its format."""
    path = folder / part.name
    if part.kind == "parquet":
        pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
        rows: Any = pyarrow.array(part.rows, "string")
        name, *inner = settings["text_field"].split(".")
        if inner:
            rows = pyarrow.StructArray.from_arrays([rows], inner)
        table = pyarrow.table({"id": pyarrow.array(range(len(part.rows))), name: rows})
        with path.open("wb") as stream:  # pyarrow would interpret some names as URLs
            parquet.write_table(table, stream, row_group_size=part.row_group)
        return
    data = part.content
    if part.compression:
        compress = from_tests("corpus_forms").COMPRESSORS[part.compression]
        cuts = [len(data) * number // part.members for number in range(part.members + 1)]
        data = b"".join(compress(data[begin:end]) for begin, end in pairwise(cuts))
    path.write_bytes(data)


# ---- documents ----


def _documents(choose: Random, scale: int) -> list[str]:
    documents: list[str] = []
    size = 0
    odd = choose.random() < 0.5
    while size < scale:
        length = max(min(scale - size, int(scale * choose.random() ** 3)), 1)
        document = _document(choose, length, odd)
        documents.append(document)
        size += len(document) + 1
    return documents


def _document(choose: Random, length: int, odd: bool) -> str:
    style = choose.choice(
        ("words", "words", "rare", "runs", "parts", "lines", "empty", "long") if odd else ("words", "rare")
    )
    match style:
        case "words":
            return " ".join(choose.choices(_WORDS, range(len(_WORDS), 0, -1), k=length // 5))
        case "rare":
            return " ".join(f"w{choose.randrange(10**6)}" for _ in range(length // 7))
        case "runs":
            return "".join(
                choose.choice(("a", "ab", "aab", " ", "é")) * choose.randrange(1, 60) for _ in range(length // 30)
            )
        case "parts":
            parts: list[str] = from_tests("adversarial").PARTS
            return "".join(choose.choices(parts, k=length // 3))
        case "lines":
            return "".join(choose.choice(_WORDS) + choose.choice(("\n", "\r\n", "\r")) for _ in range(length // 6))
        case "long":
            return choose.choice(("x", "xy", "1", "日")) * choose.randrange(min(length, 5000) + 1)
        case _:
            return ""


def _with_specials(choose: Random, text: str, settings: dict[str, Any]) -> str:
    if choose.random() > 0.1:
        return text
    position = choose.randrange(len(text) + 1)
    token: str = choose.choice(settings["special_tokens"])
    return text[:position] + token * choose.choice((1, 1, 2)) + text[position:]


# ---- files ----


def _part(
    choose: Random, stem: str, kind: Kind, documents: Sequence[str], settings: dict[str, Any], broken: bool
) -> Part:
    if kind == "parquet":
        rows = tuple(None if broken and choose.random() < 0.1 else text for text in documents)
        return Part(stem + ".parquet", kind, rows=rows, row_group=choose.choice((1, 10, 1000)))
    if kind == "jsonl":
        content = b"".join(_line(choose, text, settings["text_field"], broken) for text in documents)
    else:
        content = _text(choose, documents, settings, broken)
    compression = choose.choice(("", "", "", "gz", "bz2", "xz", "zst"))
    ending = {"text": choose.choice(("", ".txt")), "jsonl": ".jsonl"}[kind]
    suffix = f".{compression}" if compression and (kind == "jsonl" or choose.random() < 0.7) else ""
    return Part(stem + ending + suffix, kind, content, compression=compression, members=choose.choice((1, 1, 2, 5)))


def _line(choose: Random, text: str, field_path: str, broken: bool) -> bytes:
    value: Any = text
    if broken and choose.random() < 0.1:
        value = choose.choice((text + "\ud800", None))
    for name in reversed(field_path.split(".")):
        value = {"id": 1, name: value}
    ascii_only = choose.random() < 0.5 or not _is_utf8(text) or "\ud800" in json.dumps(value, ensure_ascii=False)
    line = json.dumps(value, ensure_ascii=ascii_only).encode()
    if broken and choose.random() < 0.1:
        line = line.replace(b'"id"', b'"' + choose.choice(BROKEN) + b'"', 1)
    return line + choose.choice((b"\n", b"\n", b"\r\n", b"\n\n"))


def _text(choose: Random, documents: Sequence[str], settings: dict[str, Any], broken: bool) -> bytes:
    separator = settings["separator"] or end_of_document(settings["special_tokens"]) or ""
    data = [text.encode() for text in documents]
    for number in range(len(data)):
        if broken and choose.random() < 0.1:
            position = choose.randrange(len(data[number]) + 1)
            data[number] = data[number][:position] + choose.choice(BROKEN) + data[number][position:]
    joined = separator.encode().join(data)
    return joined + (separator.encode() if choose.random() < 0.5 else b"")


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# ---- settings that select the files ----


def _select(choose: Random, folder: Path, layout: str, parts: list[Part], kind: Kind | None) -> Corpus:
    paths = [str(folder / part.name) for part in parts]
    size = sum(os.path.getsize(path) for path in paths)  # noqa: PTH202
    settings: dict[str, Any] = {}
    if kind and choose.random() < 0.5:
        settings["input_format"] = kind
    if layout == "sources":
        return _select_as_sources(choose, folder, parts, settings, size)
    stdin = None
    match layout:
        case "folder" | "glob":
            settings["input"] = [str(folder) if layout == "folder" else str(folder.parent / "*" / "*")]
            if choose.random() < 0.3:
                (folder / "junk.log").write_bytes(b"\xffjunk" * 10)
                settings["exclude"] = ["*.log"]
        case "list":
            end = b"\0" if choose.random() < 0.3 or any("\n" in path for path in paths) else b"\n"
            file_list = folder.parent / "list"
            file_list.write_bytes(b"".join(os.fsencode(path) + end for path in paths))
            settings["input"] = [f"@{file_list}"]
        case "stdin":
            stdin = Path(paths[0])
            settings |= {"input": ["-"], "input_format": parts[0].kind}
        case _:
            settings["input"] = paths
    plain = {**settings, "input": paths} if stdin else settings
    return Corpus(folder, [({}, parts)], settings, plain, stdin, size)


def _select_as_sources(choose: Random, folder: Path, parts: list[Part], settings: dict[str, Any], size: int) -> Corpus:
    sources = []
    for number, part in enumerate(parts):
        source: dict[str, Any] = {"name": f"s{number}", "paths": [str(folder / part.name)]}
        if choose.random() < 0.5:
            source["weight"] = choose.randrange(1, 5)
        if choose.random() < 0.3:
            source |= {"max_bytes": choose.randrange(1, size + 2), "seed": choose.randrange(5)}
        if choose.random() < 0.3:
            source |= {"format": part.kind}
        sources.append(source)
    settings["sources" if choose.random() < 0.5 else "input"] = sources
    return Corpus(
        folder, [(source, [part]) for source, part in zip(sources, parts, strict=True)], settings, settings, None, size
    )
