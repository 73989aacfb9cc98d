"""The second half of a trial: encode the corpus with the trained tokenizer, with random faults, then decode it.

Most encodings resume the one before, if there is something to resume.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from bpeflow import Tokenizer
from bpeflow._util.delimiters import end_of_document
from bpeflow.dataset.encode import encode_file
from soaking import troubles
from soaking.corpora import Corpus, Part
from soaking.expected import rows_of, texts_of
from soaking.process import Ended, Process
from soaking.settings import NAMED, between
from soaking.troubles import Trouble
from soaking.verdict import VerdictError, died_at_once, how_it_ended, problems_of_end

_NO_TROUBLE = Trouble("none", None, 0, 0)


class Encoding:
    """Encodes a corpus until a run completes, then decodes the result."""

    def __init__(
        self, seed: str, folder: Path, tokenizer: Path, corpus: Corpus, settings: dict[str, Any], tally: Counter[str],
        note: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._choose = Random(f"{seed}/encode")
        self._folder, self._tokenizer, self._corpus, self._settings = folder, tokenizer, corpus, settings
        self._tally, self._note = tally, note
        self._out = folder / "tokens" / "c.bin"
        self._out.parent.mkdir()
        self._chunk_size = None  # fixed, as resuming depends on it
        if self._choose.random() < 0.8:
            self._chunk_size = between(self._choose, corpus.size // 100 + 16, corpus.size + 32)

    def run(self) -> None:
        """Encode and decode. Raises `VerdictError`."""
        options: dict[str, Any] = {
            "separator": self._settings["separator"],
            "end_token": "" if self._settings["separator"] else None,
            "invalid_utf8": self._settings["invalid_utf8"],
            "bad_records": self._settings["bad_records"],
            "text_field": self._settings["text_field"],
            "index": self._choose.random() < 0.5,
            "input_format": self._corpus.settings.get("input_format", "auto"),
        }
        expected = self._expected_files(options)
        previous: dict[str, bytes] = {}
        if self._choose.random() < 0.3:
            earlier = self._folder / "earlier.txt"
            earlier.write_text("of an earlier run " * 9, encoding="utf-8")
            encode_file(Tokenizer.load(self._tokenizer), earlier, self._out, index=True)
            previous = self._files()
        for _ in range(self._choose.randrange(4)):
            trouble = troubles.draw_trouble(self._choose, encoding=True)
            ended = self._encode(options, trouble)
            found = self._files()
            if ended.status == 0:
                self._check(found, expected)
                previous = expected
            else:
                previous = self._check_incomplete(found, expected, previous)
            if not died_at_once(ended) and (left := _not_resumable(found)):
                raise VerdictError(f"encode, {trouble.kind}: left {left}")
        ended = self._encode(options, _NO_TROUBLE)
        if ended.status != 0:
            raise VerdictError(f"encode failed without any trouble: {ended.stderr.strip()[-300:]}")
        found = self._files()
        self._check(found, expected)
        if left := [name for name in found if name.startswith(".")]:
            raise VerdictError(f"encode: a complete run left {left}")
        self._decode()

    def _expected_files(self, options: dict[str, Any]) -> dict[str, bytes]:
        """Return the files that the Python encoder writes in one thread."""
        out = self._folder / "tokens" / "expected" / "c.bin"
        out.parent.mkdir()
        plain = Tokenizer.load(self._tokenizer, encoder="python")
        encode_file(
            plain, [str(path) for path in self._corpus.paths], out, num_threads=1, chunk_size=1 << 30, **options
        )
        return {path.name: path.read_bytes() for path in out.parent.iterdir()}

    def _encode(self, options: dict[str, Any], trouble: Trouble) -> Ended:
        stdin = self._corpus.stdin
        arguments = ["encode", "--overwrite", "--tokenizer", str(self._tokenizer), "--out", str(self._out)]
        arguments += ["--input", *(["-"] if stdin else map(str, self._corpus.paths))]
        for name, value in options.items():
            if value is not None and value is not False:
                arguments += [f"--{name}"] if value is True else [f"--{name}", str(value)]
        if self._choose.random() < 0.7:
            arguments += ["--threads", str(self._choose.randrange(1, 4))]
        if self._chunk_size is not None:
            arguments += ["--chunk_size", str(self._chunk_size)]
        if stdin is None and self._choose.random() < 0.7:
            arguments += ["--resume"]
        ended = self._command(arguments, trouble, stdin, impatient=self._choose.random() < 0.8)
        self._tally["encode runs that resumed"] += ": resuming after " in ended.stderr
        return ended

    def _decode(self) -> None:
        text = self._folder / "tokens" / "text"
        ended = self._command(
            [
                "decode",
                "--tokenizer",
                str(self._tokenizer),
                "--input",
                str(self._out),
                "--out",
                str(text),
                "--overwrite",
            ]
        )
        if ended.status != 0:
            raise VerdictError(f"decode: {ended.stderr.strip()[-300:]}")
        expected = self._decoded_text()
        if expected is not None and text.read_bytes() != expected:
            raise VerdictError("the decoded text differs from the encoded text")
        self._tally["texts encoded and decoded"] += 1
        self._tally["texts decoded and compared with the original"] += expected is not None

    def _command(
        self, arguments: list[str], trouble: Trouble = _NO_TROUBLE, stdin: Path | None = None, impatient: bool = False
    ) -> Ended:
        self._tally[f"{arguments[0]} runs"] += 1
        self._tally[f"trouble while encoding: {trouble.kind}"] += trouble.kind != "none"
        self._note(f"{trouble}, impatient={impatient}: bpeflow {shlex.join(arguments)}")
        process = Process(arguments, self._folder, stdin, troubles.limits_of(trouble), impatient)
        troubles.inject(trouble, process, self._out.parent, 1.0)
        ended = process.wait()
        self._note(f"   status {ended.status} in {ended.seconds:.2f} s, sent {[s.name for s in ended.signals]}")
        self._note("   " + ended.stderr.strip().replace("\n", "\n   "))
        if problems := problems_of_end(ended):
            raise VerdictError(f"{arguments[0]}, {trouble.kind}: {'; '.join(problems[:5])}")
        self._tally[f"{arguments[0]} ended: {how_it_ended(ended)}"] += 1
        return ended

    # ---- checking the files ----

    def _files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self._out.parent.iterdir() if path.is_file()}

    def _check(self, found: dict[str, bytes], expected: dict[str, bytes]) -> None:
        found = {name: data for name, data in found.items() if not name.startswith(".")}
        for name in {*found, *expected}:
            if name.endswith(".json") and name in found:  # may name standard input instead of the file
                continue
            if found.get(name) != expected.get(name):
                raise VerdictError(f"encode: {name} is {'wrong' if name in found else 'missing'}")

    def _check_incomplete(
        self, found: dict[str, bytes], expected: dict[str, bytes], previous: dict[str, bytes]
    ) -> dict[str, bytes]:
        """Check and return the files of an incomplete run: each is old or new, and if the ids are new, all are."""
        found = {name: data for name, data in found.items() if not name.startswith(".")}
        for name, data in found.items():
            if not name.endswith(".json") and data not in (expected.get(name), previous.get(name)):
                raise VerdictError(f"encode: {name} has neither the old nor the expected contents")
        if found.get("c.bin") == expected["c.bin"] != previous.get("c.bin"):
            self._check(found, expected)
        return found

    def _decoded_text(self) -> bytes | None:
        """Return the expected result of decoding; None if that is not simply the text of the documents."""
        separator = self._settings["separator"] or end_of_document(self._settings["special_tokens"]) or ""
        if (separator and separator not in self._settings["special_tokens"]) or self._settings["pattern"] not in NAMED:
            return None
        end = b"" if self._settings["separator"] else separator.encode()  # then there are no end tokens
        text, is_open = b"", False
        for part in self._corpus.parts:
            added = _text_of(part, self._settings, end)
            if added is None:
                return None
            text += end * (is_open and bool(added)) + added
            is_open = _is_open(part, self._settings) if added else is_open
        return text


def _not_resumable(found: dict[str, bytes]) -> list[str]:
    """Return the temporary files that do not belong to an interrupted encoding with a checkpoint."""
    journals = [re.fullmatch(r".*\.ckpt(\.\d+\.part)", name) for name, content in found.items() if content]
    resumable = tuple(journal[1] for journal in journals if journal)
    return sorted(name for name in found if name.startswith(".") and not name.endswith(resumable))


def _is_open(part: Part, settings: dict[str, Any]) -> bool:
    """Return whether the end of a file ends a document, because no separator does."""
    if part.kind != "text":
        return False
    *_, rest = texts_of(part, settings)
    return bool(rest)


def _text_of(part: Part, settings: dict[str, Any], end: bytes) -> bytes | None:
    """Return the documents of a file, with the text that ends each but the last one of a text file."""
    try:
        if part.kind == "text":
            part.content.decode()
            return end.join(texts_of(part, settings))
        rows = part.rows if part.kind == "parquet" else tuple(rows_of(part, {**settings, "invalid_utf8": "error"}))
        return None if None in rows else b"".join(row.encode() + end for row in rows if row is not None)
    except UnicodeError:
        return None
