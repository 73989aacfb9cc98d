"""Generate a text corpus of any size from a seed, with the word frequencies of real text.

    python tools/make_corpus.py --size 12GB --seed 1 corpus.txt

Counting the pre-tokens of a large corpus is hard because of its long tail of rare words. This text models that tail:

* Zipf's law with Mandelbrot's shift (G. K. Zipf, Human Behavior and the Principle of Least Effort, 1949; B. Mandelbrot,
  An informational theory of the statistical structure of language, 1953): the word of rank r has a frequency near
  1 / (r + shift). Beyond the roughly ten thousand words that all writers share, the exponent is steeper (R. Ferrer i
  Cancho and R. V. Solé, Two regimes in the frequency of words, 2001).
* Heaps' law (H. S. Heaps, Information Retrieval, 1978), which follows from the steeper exponent s: among n words about
  K * n ** (1 / s) are distinct, and new words keep appearing.

The parameters are calibrated against 150 MB of English Wikipedia (28 M pre-tokens with GPT-2's pattern, 0.60 M of them
distinct) and OpenWebText (11.9 GB; 2.5-2.7 G, 6.6 M). The text has no grammar and no topics, and words do not recur
within a document more than elsewhere, so short stretches of it have more distinct words than those of real text.

**Reproducible everywhere.** The text is one endless stream, which depends only on the seed and the separator. A file
contains its beginning, so a smaller corpus is a prefix of every larger one. The size is exact: a character that does
not fit at the end is replaced by 1 to 3 spaces. Every machine generates the same bytes, for two reasons. Random numbers
are raw words of PCG64, whose stream numpy promises to keep. Weights are computed only with + * / and square roots,
whose rounding IEEE 754 defines; logarithms and powers can differ between libraries and are not used.
"""

from __future__ import annotations

import argparse
import errno
import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bpeflow._util.atomic import atomic_path
from bpeflow.errors import BpeflowError
from random_text.ranks import HEAD, I64, U64, AliasTable, rank_weights, tail_ranks
from random_text.words import WORD_BYTES, Vocabulary, capital

#: Words per step. With more, a step does not fit the cache (2 ** 17 is 17 % slower); with fewer, the overhead of numpy
#: calls shows (2 ** 13 is 11 % slower). Changing it changes the text, since brackets close within a step.
STEP = 1 << 15

#: The typical document length in words. Lengths are this, times 11/8 to the power of a sum of 32 fair +-1/2, times a
#: factor from 1 to 11/8. This is close to log-normal, with a sigma of 0.9 and a mean of 1.8 times this (5 KB).
TYPICAL_LENGTH = 470.0

#: Separators after a word, with their frequency in 1/65536; a plain space takes the rest. A sentence starts after those
#: in `ENDS`. Those in `PAIRS` are closed up to three words later.
SEPARATORS = {
    " ": 0, ", ": 3800, ". ": 2400, ".\n\n": 1200, "? ": 150, "! ": 80, "... ": 40, "; ": 80, ": ": 300, "\n": 150,
    "-": 1000, "/": 80, " – ": 160, "—": 120, " & ": 40, "'s ": 550, "’s ": 180, "’re ": 30, "'ve ": 40,
    " (": 500, ' "': 500, " “": 200,
}  # fmt: skip
PAIRS = {" (": ") ", ' "': '" ', " “": "” "}

#: A row of a step's table, and the marks in it that replace longer text. Generated text has no control characters.
ROW = np.dtype([("word", f"S{WORD_BYTES}"), ("gap", "S8")])
LONG_WORD, DOCUMENT_END = b"\1", b"\2"

ENDS = {". ", ".\n\n", "? ", "! "}

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the corpus and return the exit status: 0, or 2 if it failed and nothing was written."""
    options = _parser().parse_args(arguments)
    started = time.perf_counter()
    try:
        write_corpus(options.out, options.size, options.seed, options.separator)
    except (OSError, BpeflowError) as error:
        print(f"make_corpus: {error}", file=sys.stderr)
        return 2
    seconds = time.perf_counter() - started
    print(f"{options.out}: {options.size:,} bytes in {seconds:.1f} s, {options.size / 1e6 / seconds:.0f} MB/s")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make_corpus",
        description="Generate a text corpus of any size with the word frequencies of English web text. The same size, "
        "seed and separator give the same bytes on every machine. A smaller corpus is a prefix of a larger one.",
    )
    parser.add_argument("out", type=Path, metavar="OUT", help="output file; replaced only on success")
    parser.add_argument("--size", type=parse_size, required=True, help="exact size: 12GB, 1.5GB, 600MB, 8MiB or bytes")
    parser.add_argument("--seed", type=_seed, default=1, help="from 0 up; each seed makes different words (default: 1)")
    parser.add_argument(
        "--separator",
        type=_text,
        default="<|endoftext|>",
        help="a line with this text separates documents (default: %(default)s)",
    )
    return parser


def parse_size(text: str) -> int:
    """Parse a number of bytes: ``12GB``, ``1.5 MB`` (powers of 1000), ``8MiB`` (powers of 1024) or ``1000``.

    Raises:
        argparse.ArgumentTypeError: if `text` is not a size, is 0, or is not a whole number of bytes.
    """
    match = re.fullmatch(r"([0-9]+)(?:\.([0-9]+))?\s*([KMGT]?I?B)?", text.strip().upper())
    if match is None or (unit := UNITS.get(match[3] or "")) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: use bytes, or a number with a unit, such as 1.5GB")
    fraction = match[2] or ""
    scale: int = 10 ** len(fraction)
    size, rest = divmod(int(match[1] + fraction) * unit, scale)
    if rest or not size:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of bytes above 0")
    return size


def _seed(text: str) -> int:
    if not re.fullmatch("[0-9]+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer from 0 up")
    return int(text)


def _text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError("not valid UTF-8") from None
    return text


def write_corpus(path: Path, size: int, seed: int, separator: str = "<|endoftext|>") -> None:
    """Write the first `size` bytes of the text to `path`, atomically.

    Raises:
        OSError: if the folder is not writable or its disk has too little space.
        FormatError: if `path` exists and is not a file.
    """
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        free = shutil.disk_usage(path.resolve().parent).free
        if free < size:  # fail now rather than minutes later
            remedy = f"{size:,} bytes needed, {free:,} free: choose a smaller size or another disk"
            raise OSError(errno.ENOSPC, remedy, str(path))
        left = size
        for text in generate(seed, separator):
            file.write(cut(text, left))
            left -= min(left, len(text))
            if not left:
                return


def cut(text: bytes, size: int) -> bytes:
    """Return the first `size` bytes of `text`. A character that does not fit is replaced by spaces."""
    end = min(size, len(text))
    while end < len(text) and text[end] & 0xC0 == 0x80:  # a continuation byte: its character starts earlier
        end -= 1
    return text[:end].ljust(min(size, len(text)))


def generate(seed: int, separator: str = "<|endoftext|>") -> Iterator[bytes]:
    """Yield the endless text in pieces of `STEP` words (0.2 MB) and whole characters, in less than 100 MB of memory.

    A step is a table of `ROW`: words with the text that follows each. Its bytes without the padding are the text.
    (Gathering the bytes of an arena by computed indices takes 2.5 times as long, ``b"".join`` of a list of words 6
    times.) Text that does not fit its field is replaced by a mark, and filled in afterwards in order.
    """
    streams = [np.random.PCG64(child) for child in np.random.SeedSequence(seed).spawn(4)]
    word_bits, more_bits, document_bits, spelling_bits = streams
    vocabulary = Vocabulary(spelling_bits)
    draw = AliasTable(rank_weights())
    between = Separators(document_lengths(document_bits))
    head = np.array([word.encode() for word in (*vocabulary.head, *map(capital, vocabulary.head))], dtype=ROW["word"])
    gaps = np.array([text.encode() for text in between.texts], dtype=ROW["gap"])
    document_end = f".\n{separator}\n".encode()
    rows = np.empty(STEP, dtype=ROW)
    while True:
        word, more = draw(word_bits.random_raw(STEP)), more_bits.random_raw(STEP)
        gap, starts = between.step(more)
        in_tail = np.flatnonzero(word >= HEAD)
        ranks = tail_ranks(word[in_tail] - HEAD, more[in_tail])
        tail = [text.encode() for text in vocabulary.tail(ranks, starts[in_tail])]
        word[in_tail] = 0
        rows["word"] = head[word + HEAD * starts]
        rows["word"][in_tail] = [text if len(text) <= WORD_BYTES else LONG_WORD for text in tail]
        rows["gap"] = gaps[gap]
        pieces = rows.tobytes().translate(None, b"\0").split(LONG_WORD)
        long_words = [text for text in tail if len(text) > WORD_BYTES]
        text = b"".join(chain.from_iterable(zip(pieces, [*long_words, b""], strict=True)))
        yield text.replace(DOCUMENT_END, document_end)


class Separators:
    """The text between words: spaces, punctuation, ends of sentences, paragraphs and documents."""

    def __init__(self, document_lengths: Iterator[int]) -> None:
        self.texts = [*SEPARATORS, *PAIRS.values(), DOCUMENT_END.decode()]
        self._starts_sentence = np.array([text in ENDS for text in self.texts[:-1]] + [True])
        shares = [share or 2**16 - sum(SEPARATORS.values()) for share in SEPARATORS.values()]
        self._by_bits = np.repeat(np.arange(len(shares)), shares)
        self._ends = accumulate(document_lengths)
        self._end = next(self._ends)  # words from the start of the text to the end of the document
        self._words = 0  # words of earlier steps
        self._at_sentence_start = True

    def step(self, bits: U64) -> tuple[I64, npt.NDArray[np.bool_]]:
        """Return the separator after each word of a step, and whether each word starts a sentence.

        Separators are indices into `texts`. Uses the lowest 18 bits of each random word.
        """
        gap = self._by_bits[(bits & np.uint64(0xFFFF)).astype(np.int64)]
        for opening, closing in PAIRS.items():
            opens = np.flatnonzero(gap == self.texts.index(opening))
            closes = opens + 1 + (bits[opens] >> np.uint64(16) & np.uint64(3)).astype(np.int64)
            gap[closes[closes < len(gap)]] = self.texts.index(closing)
        while self._end - self._words <= len(gap):
            gap[self._end - self._words - 1] = len(self.texts) - 1
            self._end = next(self._ends)
        self._words += len(gap)
        starts_next = self._starts_sentence[gap]
        starts = np.concatenate([[self._at_sentence_start], starts_next[:-1]])
        self._at_sentence_start = bool(starts_next[-1])
        return gap, starts


def document_lengths(bits: np.random.PCG64) -> Iterator[int]:
    """Yield endless document lengths in words, close to a log-normal distribution."""
    powers = [TYPICAL_LENGTH]
    for _ in range(16):
        powers = [powers[0] * 8 / 11, *powers, powers[-1] * 11 / 8]
    while True:
        for raw in bits.random_raw(1024).tolist():
            flips, rest = (raw & 0xFFFFFFFF).bit_count(), raw >> 32
            yield int(powers[flips] * (1 + rest / 2**32 * 3 / 8)) + 1


if __name__ == "__main__":
    raise SystemExit(main())
