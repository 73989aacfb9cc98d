"""The expected result of a trial: the files of a plain, undisturbed run, checked against the definition if small.

The plain run uses one thread, the `regex` module and the Python backend. The definition shares no code with it, except
for translating the settings into the task of the naive recount. It reads the documents as they were generated, removes
the delimiters on its own, and counts in a dictionary.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import regex

import bpeflow
from bpeflow._util.delimiters import end_of_document
from bpeflow.config import Settings, make_settings
from bpeflow.errors import BpeflowError
from bpeflow.formats import any_format as formats
from bpeflow.pretokenize.native import INSTRUCTIONS_VARIABLE
from bpeflow.pretokenize.regex import load_pretokenizer
from bpeflow.training.task import learning_task, resolve_initial
from soaking import from_tests
from soaking.corpora import Corpus, Part

#: Files whose contents depend on times and on the computer.
VARYING = ("run.json", "monitor.jsonl")
#: The naive recount runs up to this number of merges times bytes of distinct pre-tokens. More checks larger trials,
#: less leaves time for more trials.
NAIVE_WORK = 1_500_000
PLAIN = {
    "num_counter": 1, "num_merger": 1, "chunk_size": "1gb", "executor": "threads",
    "backend": "python", "max_search": "heap", "segment_size": "8gb",
}  # fmt: skip


class PlainRunError(Exception):
    """The plain run itself contradicts the definition."""


@dataclass(frozen=True)
class Expected:
    """The expected result of a trial.

    Attributes:
        files: the contents of the run folder except `VARYING` files; empty if the run must fail.
        error: why the run must fail; empty if it must succeed.
        proved: whether the result was checked against the definition.
    """

    files: dict[str, bytes] = field(repr=False)
    error: str = ""
    proved: bool = False


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the contents of all files in a folder, except `VARYING` files."""
    if not folder.exists():
        return {}
    found = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if path.name not in VARYING}


def plain_run(settings: dict[str, Any], out_dir: Path) -> Expected:
    """Train in this process, without workers and without faults."""
    log = logging.getLogger("bpeflow")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with patch.dict(os.environ, {INSTRUCTIONS_VARIABLE: "regex"}):
            bpeflow.train({**settings, **PLAIN, "out_dir": str(out_dir)})
    except BpeflowError as error:
        return Expected({}, error=f"{type(error).__name__}: {error}")
    finally:
        log.setLevel(level)
    return Expected(files_of(out_dir))


def prove(expected: Expected, settings: dict[str, Any], corpus: Corpus, out_dir: Path) -> Expected:
    """Check the result of the plain run in `out_dir` against the definition. Raises `PlainRunError` if they differ."""
    if any("max_bytes" in source for source, _ in corpus.sources):
        return expected  # the documents of a random sample are defined only by the code
    superwords = settings.get("superwords")
    splitting = {"pattern": settings["superword_pattern"], "unmatched": "isolate"} if superwords else {}
    try:
        counts = _count(corpus, settings | splitting)
    except UnicodeError as error:
        if "InvalidUtf8Error" not in expected.error and "BadRecordError" not in expected.error:
            raise PlainRunError(f"the plain run must fail ({error}), but it reports {expected.error!r}") from None
        return Expected({}, expected.error, proved=True)
    if not counts and "nothing to count" in expected.error:
        return Expected({}, expected.error, proved=True)
    if expected.error:
        raise PlainRunError(f"the plain run failed: {expected.error}")
    found = bpeflow.PretokenCounts.load(out_dir / "counts.npz")
    if dict(found) != counts:
        differing = {key for key in {*counts, *dict(found)} if counts.get(key) != dict(found).get(key)}
        raise PlainRunError(f"counts differ from the definition: {sorted(differing)[:5]}")
    if settings["skip_merge"]:
        return Expected(expected.files, proved=True)
    checked = make_settings(Settings, settings)
    checked, base = resolve_initial(checked)
    largest = checked.model_copy(update={"vocab_size": checked.sizes[-1]})
    if superwords and base is None:
        base = formats.load(out_dir / "first_stage")
    if thin := largest.thin_rare:
        found = found.thin(thin.below, thin.keep)
    task = learning_task(found, largest, base)
    if sum(map(len, counts)) * (task.max_tokens - len(task.tokens)) > NAIVE_WORK:
        return expected
    tokens = list(task.tokens)
    lines = []
    if base is None:
        for left, right_id, token, _ in from_tests("oracle").naive_merges(task):
            lines.append(f"{_printable(tokens[left])} {_printable(tokens[right_id])}\n")
            if token == len(tokens):
                tokens.append(tokens[left] + tokens[right_id])
    else:
        missing = task.max_tokens - len(task.tokens)
        new = from_tests("naive_extension").naive_extension(base, dict(found), largest, missing).merges
        lines = [f"{_printable(left)} {_printable(right)}\n" for left, right in (*base.vocab.merges, *new)]
        tokens += [left + right for left, right in new]
    if expected.files["merges.txt"].decode() != "#version: 0.2\n" + "".join(lines):
        raise PlainRunError("merges differ from the naive recount")
    vocab = json.loads(expected.files["vocab.json"])
    made = {_printable(token) for token in tokens if token} | set(settings["special_tokens"])
    if set(vocab) != made:
        raise PlainRunError(f"vocab.json and the merges have different tokens: {sorted(set(vocab) ^ made)[:5]}")
    return Expected(expected.files, proved=True)


# ---- the definition ----


def _count(corpus: Corpus, settings: dict[str, Any]) -> dict[bytes, int]:
    """Count pre-tokens by the definition. Raises `UnicodeError` for documents that must be refused."""
    find = regex.compile(str(load_pretokenizer(settings["pattern"]).regex)).finditer
    counts: Counter[bytes] = Counter()
    for source, parts in corpus.sources:
        for part in parts:
            for pieces in documents_of(part, settings):
                for piece in pieces:
                    end = 0
                    for start, following in [*(match.span() for match in find(piece)), (len(piece), len(piece))]:
                        gap = piece[end:start] if settings["unmatched"] == "isolate" else ""
                        for pretoken in filter(None, (gap, piece[start:following])):
                            counts[pretoken.encode()] += source.get("weight", 1)
                        end = following
    return dict(counts)


def documents_of(part: Part, settings: dict[str, Any]) -> Iterator[list[str]]:
    """Yield the documents of a file, except skipped ones, as their pieces between special tokens."""
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
    """Return the separator, and a pattern that matches it and the special tokens."""
    separator = settings["separator"] or end_of_document(settings["special_tokens"])
    delimiters = {token.encode() for token in (*settings["special_tokens"], separator) if token}
    longest_first = sorted(delimiters, key=len, reverse=True)
    pattern = b"|".join(map(re.escape, longest_first)) if delimiters else rb"(?!)"
    return separator.encode() if separator else None, re.compile(b"(" + pattern + b")")


def texts_of(part: Part, settings: dict[str, Any]) -> Iterator[bytes]:
    """Yield the documents of a file with their special tokens. Text after the last separator is a document, too."""
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
                yield row.encode(errors="surrogatepass")  # bytes that are not UTF-8 either
        elif settings["bad_records"] != "skip":
            raise UnicodeError("null")


def rows_of(part: Part, settings: dict[str, Any]) -> Iterator[str | None]:
    """Yield the text fields of a JSON Lines file; None for null."""
    for line in part.content.split(b"\n"):
        try:
            value: Any = json.loads(
                line.decode(errors="replace" if settings["invalid_utf8"] == "replace" else "strict") or "0"
            )
        except UnicodeDecodeError:
            if settings["invalid_utf8"] == "error":
                raise
            continue
        except json.JSONDecodeError:  # a line of white space
            continue
        for name in settings["text_field"].split(".") if value != 0 else ():
            value = value[name]
        if value != 0:
            yield value


def _printable(token: bytes) -> str:
    """Return a token in GPT-2's printable form, as in OpenAI's encoder.py."""
    kept = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in kept]
    characters = {byte: chr(byte) for byte in kept} | {byte: chr(256 + number) for number, byte in enumerate(others)}
    return "".join(characters[byte] for byte in token)
