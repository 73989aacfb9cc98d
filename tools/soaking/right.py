"""The right result of a trial: what an unbroken, plain run writes; for small ones held against the definition.

The plain run has one thread, the `regex` module and the backend in Python. The definition shares nothing with that but
how settings are stated for the naive recount: it reads the documents as they were made, takes the delimiters out by
itself, and counts in a dictionary.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import regex

import bpeflow
from bpeflow.config import Settings, make_settings
from bpeflow.errors import BpeflowError
from bpeflow.formats import gpt2
from bpeflow.pretokenize.regex import load_pretokenizer
from bpeflow.training.learn import learning_task
from soaking import from_tests
from soaking.corpora import Corpus, Part

#: Files whose content tells of times and machines.
VARYING = ("run.json", "monitor.jsonl")
#: Merges times bytes of distinct pre-tokens up to which the naive recount is tried.
NAIVE_WORK = 1_500_000
PLAIN = {
    "scanner": "regex", "num_counter": 1, "num_merger": 1, "chunk_size": "1gb", "small_input": "1gb",
    "backend": "python", "max_search": "heap", "segment_size": "8gb",
}  # fmt: skip


class Wrong(Exception):
    """The plain run itself is not what the definition says."""


@dataclass(frozen=True)
class Right:
    """What a trial has to end with.

    Attributes:
        files: the content of each file of the run folder, but for those that vary; empty if the run must fail.
        error: why it must fail.
        proved: whether the definition has been asked.
    """

    files: dict[str, bytes] = field(repr=False)
    error: str = ""
    proved: bool = False


def files_of(folder: Path) -> dict[str, bytes]:
    """The content of all files of a folder, but for those that vary."""
    if not folder.exists():
        return {}
    found = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if name not in VARYING}


def plain_run(settings: dict[str, Any], out_dir: Path) -> Right:
    """Run without processes and without trouble, in this process."""
    log = logging.getLogger("bpeflow")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        bpeflow.train({**settings, **PLAIN, "out_dir": str(out_dir)})
    except BpeflowError as error:
        return Right({}, error=f"{type(error).__name__}: {error}")
    finally:
        log.setLevel(level)
    return Right(files_of(out_dir))


def prove(right: Right, settings: dict[str, Any], corpus: Corpus, out_dir: Path) -> Right:
    """Hold what the plain run has left in `out_dir` against the definition. Raises `Wrong` where they differ."""
    if any("max_bytes" in source for source, _ in corpus.sources):
        return right  # what a sample takes is defined by the code alone
    try:
        counts = _count(corpus, settings)
    except UnicodeError as error:
        if "InvalidUtf8Error" not in right.error and "null" not in right.error:
            raise Wrong(f"there is input to be refused ({error}), but the plain run says {right.error!r}") from None
        return Right({}, right.error, proved=True)
    if right.error:
        raise Wrong(f"the plain run fails: {right.error}")
    found = bpeflow.PretokenCounts.load(out_dir / "counts.npz")
    if dict(found) != counts:
        differing = {key for key in {*counts, *dict(found)} if counts.get(key) != dict(found).get(key)}
        raise Wrong(f"counts differ from the definition: {sorted(differing)[:5]}")
    if settings["skip_merge"]:
        return Right(right.files, proved=True)
    checked = make_settings(Settings, settings)
    largest = checked.model_copy(update={"vocab_size": checked.sizes[-1]})
    initial = (
        gpt2.load_files(Path(init) / "vocab.json", Path(init) / "merges.txt").merges
        if (init := settings.get("init_from"))
        else ()
    )
    task = learning_task(found, largest, initial)
    if sum(map(len, counts)) * (task.max_tokens - len(task.tokens)) > NAIVE_WORK:
        return right
    tokens = list(task.tokens)
    lines = []
    for left, right_id, token, _ in from_tests("oracle").naive_merges(task):
        lines.append(f"{_printable(tokens[left])} {_printable(tokens[right_id])}\n")
        if token == len(tokens):
            tokens.append(tokens[left] + tokens[right_id])
    if right.files["merges.txt"].decode() != "#version: 0.2\n" + "".join(lines):
        raise Wrong("merges differ from the naive recount")
    vocab = json.loads(right.files["vocab.json"])
    made = {_printable(token) for token in tokens if token} | set(settings["special_tokens"])
    if set(vocab) != made:
        raise Wrong(f"vocab.json has other tokens than were made: {sorted(set(vocab) ^ made)[:5]}")
    return Right(right.files, proved=True)


# ---- the definition ----


def _count(corpus: Corpus, settings: dict[str, Any]) -> dict[bytes, int]:
    """Count pre-tokens. Raises `UnicodeError` for documents that are to be refused."""
    find = regex.compile(load_pretokenizer(settings["pattern"]).regex).finditer
    counts: Counter[bytes] = Counter()
    for source, parts in corpus.sources:
        for part in parts:
            for pieces in documents_of(part, settings):
                for piece in pieces:
                    for match in find(piece):
                        if match.group():
                            counts[match.group().encode()] += source.get("weight", 1)
    return dict(counts)


def documents_of(part: Part, settings: dict[str, Any]) -> Iterator[list[str]]:
    """The documents of a file, each as its pieces between special tokens; without those to be skipped."""
    _, pattern = _delimiters(settings)
    for document in texts_of(part, settings):
        pieces = pattern.split(document)[::2]
        if decoded := _decoded(pieces, settings["invalid_utf8"]):
            yield decoded


def _decoded(pieces: list[bytes], policy: str) -> list[str] | None:
    try:
        return [piece.decode(errors="replace" if policy == "replace" else "strict") for piece in pieces]
    except UnicodeDecodeError:
        if policy == "error":
            raise
        return None


def _delimiters(settings: dict[str, Any]) -> tuple[bytes | None, re.Pattern[bytes]]:
    """The separator, and what finds it and the special tokens."""
    separator = settings["separator"] or next(iter(settings["special_tokens"]), None)
    delimiters = {token.encode() for token in (*settings["special_tokens"], separator) if token}
    longest_first = sorted(delimiters, key=len, reverse=True)
    pattern = b"|".join(map(re.escape, longest_first)) if delimiters else rb"(?!)"
    return separator.encode() if separator else None, re.compile(b"(" + pattern + b")")


def texts_of(part: Part, settings: dict[str, Any]) -> Iterator[bytes]:
    """The documents of a file, special tokens included; of text also what is behind the last separator."""
    if part.kind == "text":
        separator, pattern = _delimiters(settings)
        document = b""
        for piece in pattern.split(part.content):
            if piece == separator:
                yield document
                document = b""
            else:
                document += piece
        yield document
        return
    rows = part.rows if part.kind == "parquet" else rows_of(part, settings)
    for row in rows:
        if row is not None:
            if settings["invalid_utf8"] == "replace":
                yield row.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
            else:
                yield row.encode(errors="surrogatepass")  # whose bytes are no UTF-8 either
        elif settings["invalid_utf8"] != "skip":
            raise UnicodeError("null")


def rows_of(part: Part, settings: dict[str, Any]) -> Iterator[str | None]:
    for line in part.content.split(b"\n"):
        try:
            value: Any = json.loads(
                line.decode(errors="replace" if settings["invalid_utf8"] == "replace" else "strict") or "0"
            )
        except UnicodeDecodeError:
            if settings["invalid_utf8"] == "error":
                raise
            continue
        except json.JSONDecodeError:  # white space
            continue
        for name in settings["text_field"].split(".") if value != 0 else ():
            value = value[name]
        if value != 0:
            yield value


def _printable(token: bytes) -> str:
    """GPT-2's characters for bytes, as OpenAI's encoder.py has them."""
    kept = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in kept]
    characters = {byte: chr(byte) for byte in kept} | {byte: chr(256 + number) for number, byte in enumerate(others)}
    return "".join(characters[byte] for byte in token)
