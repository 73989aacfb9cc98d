"""The second half of a trial: encoding the corpus with the tokenizer that was made, in trouble, and decoding it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from bpeflow import Tokenizer
from bpeflow.dataset.encode import encode_file
from soaking import troubles
from soaking.corpora import Corpus, Part
from soaking.process import Ended, Process
from soaking.right import rows_of, texts_of
from soaking.settings import NAMED
from soaking.troubles import Trouble
from soaking.verdict import Lost, how_it_ended, problems_of_end

_NO_TROUBLE = Trouble("none", None, 0, 0)


class Encoding:
    """Encodes until it is done, and decodes that."""

    def __init__(
        self, seed: str, folder: Path, tokenizer: Path, corpus: Corpus, settings: dict[str, Any], tally: Counter[str],
        note: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._choose = Random(f"{seed}/encode")
        self._folder, self._tokenizer, self._corpus, self._settings = folder, tokenizer, corpus, settings
        self._tally, self._note = tally, note
        self._out = folder / "tokens" / "c.bin"
        self._out.parent.mkdir()

    def run(self) -> None:
        """Run it. Raises `Lost`."""
        options: dict[str, Any] = {
            "separator": self._settings["separator"],
            "invalid_utf8": self._settings["invalid_utf8"],
            "text_field": self._settings["text_field"],
            "text_column": self._settings["text_column"],
            "index": self._choose.random() < 0.5,
            "input_format": self._corpus.settings.get("input_format", "auto"),
        }
        right = self._right(options)
        previous: dict[str, bytes] = {}
        if self._choose.random() < 0.3:
            earlier = self._folder / "earlier.txt"
            earlier.write_text("of an earlier run " * 9, encoding="utf-8")
            encode_file(Tokenizer.load(self._tokenizer), earlier, self._out, index=True)
            previous = self._files()
        for _ in range(self._choose.randrange(3)):
            trouble = troubles.draw_trouble(self._choose, encoding=True)
            ended = self._encode(options, trouble)
            found = self._files()
            if ended.status == 0:
                self._check(found, right)
                previous = right
            else:
                previous = self._checked_part(found, right, previous)
            if ended.status >= 0 and any(name.startswith(".") for name in found):
                raise Lost(f"encode, {trouble.kind}: left {sorted(found)}")
            self._clear()
        ended = self._encode(options, _NO_TROUBLE)
        if ended.status != 0:
            raise Lost(f"encode without any trouble: {ended.stderr.strip()[-300:]}")
        self._check(self._files(), right)
        self._decode()

    def _right(self, options: dict[str, Any]) -> dict[str, bytes]:
        """What the encoder in Python writes, in one thread."""
        out = self._folder / "tokens" / "right" / "c.bin"
        out.parent.mkdir()
        plain = Tokenizer.load(self._tokenizer, encoder="python")
        encode_file(plain, [str(path) for path in self._corpus.paths], out, threads=1, chunk_size=1 << 30, **options)
        return {path.name: path.read_bytes() for path in out.parent.iterdir()}

    def _encode(self, options: dict[str, Any], trouble: Trouble) -> Ended:
        stdin = self._corpus.stdin
        arguments = ["encode", "--tokenizer", str(self._tokenizer), "--out", str(self._out)]
        arguments += ["--input", *(["-"] if stdin else map(str, self._corpus.paths))]
        for name, value in options.items():
            if value is not None and value is not False:
                arguments += [f"--{name}"] if value is True else [f"--{name}", str(value)]
        if self._choose.random() < 0.7:
            arguments += ["--threads", str(self._choose.randrange(1, 4))]
        if self._choose.random() < 0.7:
            arguments += [
                "--chunk_size",
                str(self._choose.randrange(self._corpus.size // 100 + 16, self._corpus.size + 32)),
            ]
        return self._command(arguments, trouble, stdin)

    def _decode(self) -> None:
        text = self._folder / "tokens" / "text"
        ended = self._command(
            ["decode", "--tokenizer", str(self._tokenizer), "--input", str(self._out), "--out", str(text)]
        )
        if ended.status != 0:
            raise Lost(f"decode: {ended.stderr.strip()[-300:]}")
        expected = self._text()
        if expected is not None and text.read_bytes() != expected:
            raise Lost("decode gives another text than was encoded")
        self._tally["texts encoded and decoded"] += 1
        self._tally["… and compared with what was given"] += expected is not None

    def _command(self, arguments: list[str], trouble: Trouble = _NO_TROUBLE, stdin: Path | None = None) -> Ended:
        self._tally[f"{arguments[0]} runs"] += 1
        self._tally[f"trouble of encode: {trouble.kind}"] += trouble.kind != "none"
        self._note(f"{trouble}: bpeflow {shlex.join(arguments)}")
        process = Process(arguments, self._folder, stdin, troubles.limits_of(trouble))
        troubles.befall(trouble, process, self._out.parent, 1.0)
        ended = process.wait()
        self._note(f"   status {ended.status} in {ended.seconds:.2f} s, sent {[s.name for s in ended.signals]}")
        self._note("   " + ended.stderr.strip().replace("\n", "\n   "))
        if problems := problems_of_end(ended):
            raise Lost(f"{arguments[0]}, {trouble.kind}: {'; '.join(problems[:5])}")
        self._tally[f"{arguments[0]} ended: {how_it_ended(ended)}"] += 1
        return ended

    # ---- what is there, and what should be ----

    def _files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self._out.parent.iterdir() if path.is_file()}

    def _clear(self) -> None:
        """Remove what a killed run has left under names that nobody takes for a result."""
        for path in self._out.parent.glob(".*.part"):
            path.unlink()

    def _check(self, found: dict[str, bytes], right: dict[str, bytes]) -> None:
        found = {name: data for name, data in found.items() if not name.startswith(".")}
        for name in {*found, *right}:
            if name.endswith(".json") and name in found:  # which names standard input, and not the file
                continue
            if found.get(name) != right.get(name):
                raise Lost(f"encode: {name} is {'wrong' if name in found else 'missing'}")

    def _checked_part(
        self, found: dict[str, bytes], right: dict[str, bytes], previous: dict[str, bytes]
    ) -> dict[str, bytes]:
        """What a run has left that did not come to its end: whole files; and if the ids are new, all of them."""
        found = {name: data for name, data in found.items() if not name.startswith(".")}
        for name, data in found.items():
            if not name.endswith(".json") and data not in (right.get(name), previous.get(name)):
                raise Lost(f"encode: {name} is neither what it was nor what it shall be")
        if found.get("c.bin") == right["c.bin"] != previous.get("c.bin"):
            self._check(found, right)
        return found

    def _text(self) -> bytes | None:
        """What decoding has to give; None where that takes more than a few words to say."""
        separator = self._settings["separator"] or next(iter(self._settings["special_tokens"]), "")
        if (separator and separator not in self._settings["special_tokens"]) or self._settings["pattern"] not in NAMED:
            return None
        texts = [_text_of(part, self._settings, separator.encode()) for part in self._corpus.parts]
        return None if None in texts else b"".join(text for text in texts if text is not None)


def _text_of(part: Part, settings: dict[str, Any], separator: bytes) -> bytes | None:
    try:
        if part.kind == "text":
            part.content.decode()
            return part.content + (separator if list(texts_of(part, settings))[-1] else b"")
        rows = part.rows if part.kind == "parquet" else tuple(rows_of(part, {**settings, "invalid_utf8": "error"}))
        return None if None in rows else b"".join(row.encode() + separator for row in rows if row is not None)
    except UnicodeError:
        return None
