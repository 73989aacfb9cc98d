"""Encode or decode: `encode.py TOOL WORK THREADS PATTERN TOKENIZER OUT_DIR FILE...`, started by `tools/bench.py`.

TOOL is bpeflow or a peer, WORK one of `benchmarks.encode.WORKS`, TOKENIZER a folder with vocab.json and merges.txt.
The last line of the output is JSON: the seconds of the work, the number of ids (of bytes when decoding), and their
checksum. Only the work is timed.
"""

from __future__ import annotations

import functools
import itertools
import json
import mmap
import statistics
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

#: Characters of a short text, and the largest number of them.
_SHORT, _MAX_SHORT = 20, 100_000
#: Characters that a tokenizer encodes when loading is measured, as some load only then.
_LOADED = 1000
#: Lines per call of HuggingFace's tokenizer. More take more memory, about 100 bytes per id; fewer mean more calls.
_LINES_PER_CALL = 10_000

Ids = NDArray[Any]
T = TypeVar("T")


class Tool(Protocol):
    """A loaded tokenizer, ready to encode its files with its number of threads."""

    def files(self) -> Ids: ...
    def lines(self, lines: list[str]) -> list[list[int]]: ...
    def arrays(self, lines: list[str]) -> Ids: ...
    def short(self, text: str) -> Sequence[int]: ...
    def decode(self, ids: Ids) -> bytes: ...


class Bpeflow:
    def __init__(
        self,
        folder: Path,
        pattern: str,
        files: list[Path],
        threads: int,
        encoder: Literal["native", "python"] = "native",
    ) -> None:
        from dataclasses import replace

        import bpeflow.dataset.encode  # noqa: F401 -- the start of encode_file, as the peers' imports, is not timed
        from bpeflow.formats import gpt2
        from bpeflow.tokenizer.tokenizer import Tokenizer

        spec = replace(gpt2.load(folder), pattern=_by_name(pattern))
        self._tokenizer = Tokenizer.from_spec(spec, encoder=encoder)
        self._files, self._threads = files, threads
        self.short = self._tokenizer.encode

    def files(self) -> Ids:
        return _concatenated([self._encode(path) for path in self._files])

    def _encode(self, path: Path) -> Ids:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            return self._tokenizer.encode_to_numpy(text, num_threads=self._threads)

    def write(self, out_dir: Path) -> list[Path]:
        """Encode each file to a token file."""
        written = [out_dir / f"{number}.bin" for number in range(len(self._files))]
        for path, target in zip(self._files, written, strict=True):
            self._tokenizer.encode_file(path, target, num_threads=self._threads)
        return written

    def read(self, written: list[Path]) -> Ids:
        """Return the ids in token files."""
        from bpeflow import load_tokens

        return _concatenated([load_tokens(path) for path in written])

    def lines(self, lines: list[str]) -> list[list[int]]:
        return self._tokenizer.encode_batch(lines, num_threads=self._threads)

    def arrays(self, lines: list[str]) -> Ids:
        ids, _ = self._tokenizer.encode_batch_to_numpy(lines, num_threads=self._threads)
        return ids

    def decode(self, ids: Ids) -> bytes:
        return self._tokenizer.decode_bytes(ids)


class BpeflowPython(Bpeflow):
    def __init__(self, folder: Path, pattern: str, files: list[Path], threads: int) -> None:
        super().__init__(folder, pattern, files, threads, "python")


class Tiktoken:
    def __init__(self, folder: Path, pattern: str, files: list[Path], threads: int) -> None:
        import tiktoken

        from bpeflow.formats import gpt2

        vocab = gpt2.load(folder).vocab
        specials = vocab.special_tokens
        ranks = {token: i for i, token in enumerate(vocab.tokens) if token and i not in specials.values()}
        self._encoding = tiktoken.Encoding("bench", pat_str=pattern, mergeable_ranks=ranks, special_tokens=specials)
        self._pieces = _pieces(folder, pattern, files)
        self._threads = threads

    def files(self) -> Ids:
        def encode(text: str) -> Ids:
            return self._encoding.encode_to_numpy(text, allowed_special="all")

        with ThreadPoolExecutor(self._threads) as pool:
            return np.concatenate([*pool.map(encode, self._pieces)])

    def lines(self, lines: list[str]) -> list[list[int]]:
        return self._encoding.encode_batch(lines, num_threads=self._threads, allowed_special="all")

    def arrays(self, lines: list[str]) -> Ids:
        return _flat(self.lines(lines))

    def short(self, text: str) -> Sequence[int]:
        return self._encoding.encode(text, allowed_special="all")

    def decode(self, ids: Ids) -> bytes:
        return self._encoding.decode_bytes(ids.tolist())


class Gigatoken:
    def __init__(self, folder: Path, pattern: str, files: list[Path], threads: int) -> None:  # noqa: ARG002
        import gigatoken

        self._tokenizer = gigatoken.Tokenizer.from_json(_tokenizer_json(folder))
        self._files = [str(path) for path in files]
        self._parallel = threads > 1
        self.short = self._tokenizer.encode

    def files(self) -> Ids:
        rows = self._tokenizer.encode_files(self._files, parallel=self._parallel)
        return _concatenated([np.asarray(row) for row in rows])

    def lines(self, lines: list[str]) -> list[list[int]]:
        encoded: list[list[int]] = self._tokenizer.encode_batch_list(lines, parallel=self._parallel)
        return encoded

    def arrays(self, lines: list[str]) -> Ids:
        rows = self._tokenizer.encode_batch(lines, parallel=self._parallel)
        return np.asarray(rows.layout.content.data)

    def decode(self, ids: Ids) -> bytes:
        decoded: bytes = self._tokenizer.decode(ids)
        return decoded


class Huggingface:
    def __init__(self, folder: Path, pattern: str, files: list[Path], threads: int) -> None:  # noqa: ARG002
        self._tokenizer = _huggingface_tokenizer(folder)
        self._pieces = _pieces(folder, pattern, files)

    def files(self) -> Ids:
        pieces = _groups(self._pieces, 8)  # the encodings take about 100 bytes per id
        return np.concatenate([np.array(ids, np.uint32) for group in pieces for ids in self._encode(group)])

    def lines(self, lines: list[str]) -> list[list[int]]:
        return [ids for group in _groups(lines, _LINES_PER_CALL) for ids in self._encode(group)]

    def arrays(self, lines: list[str]) -> Ids:
        return _flat(self.lines(lines))

    def _encode(self, texts: list[str]) -> list[list[int]]:
        return [encoded.ids for encoded in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def short(self, text: str) -> Sequence[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Ids) -> bytes:
        decoded: str = self._tokenizer.decode(ids.tolist(), skip_special_tokens=False)
        return decoded.encode()


def _huggingface_tokenizer(folder: Path) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    from bpeflow.formats import gpt2

    tokenizer = Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([*gpt2.load(folder).vocab.special_tokens])
    return tokenizer


@functools.cache
def _tokenizer_json(folder: Path) -> str:
    text: str = _huggingface_tokenizer(folder).to_str()
    return text


def _pieces(folder: Path, pattern: str, files: list[Path]) -> list[str]:
    """Return the text of all files, cut at places that change no id."""
    from bpeflow.formats import gpt2
    from bpeflow.pretokenize.regex import load_pretokenizer
    from bpeflow.tokenizer.parallel import cut_text
    from bpeflow.tokenizer.special_tokens import SpecialTokens

    pretokenizer = load_pretokenizer(_by_name(pattern))
    specials = SpecialTokens.of(gpt2.load(folder).vocab.special_tokens)
    texts = [path.read_bytes() for path in files]
    return [text[begin:end].decode() for text in texts for begin, end in cut_text(text, pretokenizer, specials)]


def _by_name(pattern: str) -> str:
    """Return the name of a named pattern's expression, or the expression itself if it has no name."""
    from bpeflow.pretokenize.patterns import NAMED_PATTERNS

    names = {regex: name for name, regex in NAMED_PATTERNS.items()}
    return names.get(pattern, pattern)


def _flat(encoded: Sequence[Sequence[int]]) -> Ids:
    return np.fromiter(itertools.chain.from_iterable(encoded), "<u4")


def _concatenated(arrays: list[Ids]) -> Ids:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _groups(items: list[T], size: int) -> Iterator[list[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


def do(tool: Tool, work: str, files: list[Path], out_dir: Path = Path()) -> tuple[float, bytes, int]:
    """Do the work. Return its seconds, the result as bytes, and the number of ids (of bytes when decoding)."""
    if work == "file" and isinstance(tool, Bpeflow):
        seconds, written = _timed(lambda: tool.write(out_dir))
        ids = tool.read(written)
        return seconds, ids.astype("<u4").tobytes(), len(ids)
    if work in ("first", "warm", "decode", "file"):
        seconds, ids = _timed(tool.files)
        if work == "warm":
            seconds = statistics.median(_timed(tool.files)[0] for _ in range(3))
        if work == "decode":
            seconds, decoded = _timed(lambda: tool.decode(ids))
            return seconds, decoded, len(decoded)
        return seconds, ids.astype("<u4").tobytes(), len(ids)
    text = "".join(path.read_bytes().decode() for path in files)
    if work == "arrays":
        lines = text.split("\n")
        tool.arrays(lines[:1])
        seconds, ids = _timed(lambda: tool.arrays(lines))
        return seconds, ids.astype("<u4").tobytes(), len(ids)
    encoded: Sequence[Sequence[int]]
    if work == "lines":
        lines = text.split("\n")
        seconds, encoded = _timed(lambda: tool.lines(lines))
    else:
        texts = [text[i : i + _SHORT] for i in range(0, min(len(text), _SHORT * _MAX_SHORT), _SHORT)]
        tool.short(texts[0])
        seconds, encoded = _timed(lambda: [tool.short(text) for text in texts])
    flat = _flat(encoded)
    return seconds, flat.tobytes(), len(flat)


def load(tool: Callable[[], Tool], text: str) -> tuple[float, bytes, int]:
    """Load a tokenizer for the second time in the process, and encode a text. The result is as that of `do`."""
    tool()
    seconds, ids = _timed(lambda: tool().short(text))
    return seconds, np.array(ids, "<u4").tobytes(), len(ids)


TOOLS: dict[str, Callable[[Path, str, list[Path], int], Tool]] = {
    "bpeflow": Bpeflow,
    "bpeflow-python": BpeflowPython,
    "tiktoken": Tiktoken,
    "gigatoken": Gigatoken,
    "huggingface": Huggingface,
}


def main(name: str, work: str, threads: str, pattern: str, folder: str, out_dir: str, *names: str) -> None:
    files = [Path(file) for file in names]
    if work == "load":
        text = files[0].read_text(encoding="utf-8", errors="replace")[:_LOADED]
        seconds, result, count = load(lambda: TOOLS[name](Path(folder), pattern, [], int(threads)), text)
    else:
        tool = TOOLS[name](Path(folder), pattern, files, int(threads))
        seconds, result, count = do(tool, work, files, Path(out_dir))
    unit = "bytes" if work == "decode" else "ids"
    print("\n" + json.dumps({"seconds": seconds, unit: count, "checksum": zlib.crc32(result)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
