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
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, chain
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bpeflow._util.atomic import atomic_path
from bpeflow.errors import BpeflowError

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]

#: Words per step. With more, a step does not fit the cache (2 ** 17 is 17 % slower); with fewer, the overhead of numpy
#: calls shows (2 ** 13 is 11 % slower). Changing it changes the text, since brackets close within a step.
STEP = 1 << 15
#: Ranks below this have their own weight and a stored spelling. Higher ranks are drawn in groups and spelt on the fly.
HEAD = 1 << 17
#: There are 2 ** 32 words, enough that even terabytes of text do not exhaust any part of the tail.
RANK_BITS = 32
#: Groups per doubling of the rank in the tail. More follow the curve more closely, fewer keep the table smaller.
GROUPS = 32

#: The curve: weight(r) = 1 / (r + SHIFT) / (1 + r / KNEE) ** (7 / 8). The exponent is 1, and 15 / 8 well past the knee.
SHIFT = 1.5
KNEE = 18000.0

#: The typical document length in words. Lengths are this, times 11/8 to the power of a sum of 32 fair +-1/2, times a
#: factor from 1 to 11/8. This is close to log-normal, with a sigma of 0.9 and a mean of 1.8 times this (5 KB).
TYPICAL_LENGTH = 470.0

_FREQUENT = (
    "the of and to a in that is for on it with was as I he you this be at are by from have not they his but we or an "
    "has who will their had all one more been were said about which can its would there out up what people when if so "
    "it's no her than time like other just new some into also don't them over my she after him first your now only "
    "two how our because most could even these where then any get many back make may way much such did too should "
    "those through very down that's off year good still here day go us being does well work I'm didn't can't you're"
)
FREQUENT = _FREQUENT.split()

#: Prefix codes, as {bits: symbols}: a symbol of b bits is drawn with probability 1 / 2 ** b. Consonants and vowels
#: alternate, so a spelling splits into symbols in only one way, and different bits give different words.
ONSETS = {3: ["", "s"], 4: "cpmbdrt", 5: "flhgwn", 6: ["st", "pr", "k", "v", "tr", "j", "ch", "sh"]}
VOWELS = {2: "ea", 3: "io", 4: "u", 5: ["y", "io", "ea"], 6: ["ou", "ie", "ai", "oo", "ee", "ia"]}
MIDDLES = {
    3: "nrt",
    4: "sldc",
    5: ["m", "p", "v", "nt", "st", "ng"],
    6: ["g", "b", "f", "k", "ck", "ss", "ll", "nd", "rt", "ct", "sh", "th"],
}
CODE_BITS = 6

ACCENTS = str.maketrans("aeiounc", "áéíöüñç")
CYRILLIC = str.maketrans("abcdefghijklmnoprstuvwxy", "абцдефгхийклмнопрстувшжы")
#: Writing styles. The number of a word in the tail selects one of these entries.
KINDS = ["Capital"] * 23 + ["UPPER"] * 3 + ["accents"] * 4 + ["cyrillic", "chinese", "number"] + ["lower"] * 31

#: Separators after a word, with their frequency in 1/65536; a plain space takes the rest. A sentence starts after those
#: in `ENDS`. Those in `PAIRS` are closed up to three words later.
SEPARATORS = {
    " ": 0, ", ": 3800, ". ": 2400, ".\n\n": 1200, "? ": 150, "! ": 80, "... ": 40, "; ": 80, ": ": 300, "\n": 150,
    "-": 1000, "/": 80, " – ": 160, "—": 120, " & ": 40, "'s ": 550, "’s ": 180, "’re ": 30, "'ve ": 40,
    " (": 500, ' "': 500, " “": 200,
}  # fmt: skip
PAIRS = {" (": ") ", ' "': '" ', " “": "” "}
#: A row of a step's table, and the marks in it that replace longer text. Generated text has no control characters.
WORD_BYTES = 16
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


def tail_ranks(group: I64, bits: U64) -> U64:
    """Draw a rank from each of these groups, uniformly, with the upper half of a random word."""
    firsts, sizes = GROUP_RANKS
    ranks: U64 = firsts[group].astype(np.uint64) + ((bits >> np.uint64(32)) & (sizes[group] - 1).astype(np.uint64))
    return ranks


class Vocabulary:
    """The word of each rank from 0 up. Different ranks have different words, and frequent words are short."""

    def __init__(self, bits: np.random.PCG64) -> None:
        keys = [int(key) for key in bits.random_raw(3)]
        self._add, self._first, self._second = (np.uint64(key % 2**RANK_BITS | 1) for key in keys)
        self.head = _head(bits)

    def tail(self, ranks: U64, starts: npt.NDArray[np.bool_]) -> list[str]:
        """Return the words of ranks from `HEAD` up, capitalized at the start of a sentence.

        All words are different. A bijection of the 32-bit numbers scatters the ranks (odd factors and shifts can be
        undone), and all 32 bits are spelt, so no two ranks have the same spelling. Words of the head have fewer bits.
        Case, accents and scripts preserve the difference, since they can be undone as well.
        """
        mask = np.uint64(2**RANK_BITS - 1)
        number = (ranks * self._first + self._add) & mask
        number ^= number >> np.uint64(15)
        number = number * self._second & mask
        number ^= number >> np.uint64(16)
        kinds = (number * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(58)
        spelt = spell(number, np.full(len(number), RANK_BITS))
        rows = zip(spelt, number.tolist(), kinds.tolist(), starts.tolist(), strict=True)
        return [
            word if KINDS[kind] == "lower" and not start else dress(word, value, KINDS[kind], start)
            for word, value, kind, start in rows
        ]


def _head(bits: np.random.PCG64) -> list[str]:
    """Return the words of the ranks below `HEAD`: frequent English words, then made-up words with some numbers."""
    words = FREQUENT + [""] * (HEAD - len(FREQUENT))
    seen = set(FREQUENT)
    numbers = _numbers()
    for rank in range(len(FREQUENT), HEAD, 24):
        words[rank] = next(numbers)
    pending = np.array([rank for rank, word in enumerate(words) if not word], dtype=np.int64)
    while len(pending):  # words that are too long or exist already are drawn again
        raw = bits.random_raw(len(pending))
        doublings = np.array([rank.bit_length() for rank in pending.tolist()])
        # Less than RANK_BITS by the longest code or more, so that no spelling of the head equals one of the tail.
        size = np.minimum(5 * doublings // 3 + (raw >> np.uint64(62)).astype(np.int64) - 2, RANK_BITS - CODE_BITS)
        values = raw & ((np.uint64(1) << size.astype(np.uint64)) - np.uint64(1))
        styles = (raw >> np.uint64(40) & np.uint64(63)).tolist()
        rows = zip(pending.tolist(), spell(values, size), doublings.tolist(), styles, strict=True)
        for rank, word, doubling, style in rows:
            # Names are rare among the frequent words, and other scripts appear late. The shares grow to the tail's.
            kind = KINDS[style] if style < 3 * doubling - 16 else "lower"
            dressed = dress(word, rank + 2**RANK_BITS, kind, start=False)
            if dressed not in seen and len(dressed.encode()) <= WORD_BYTES:
                seen.add(dressed)
                words[rank] = dressed
        pending = np.array([rank for rank in pending.tolist() if not words[rank]], dtype=np.int64)
    return words


def _numbers() -> Iterator[str]:
    yield from map(str, range(2026, 1900, -1))
    for number in range(1, 1900):
        yield from (str(number), f"{number // 10}.{number % 10}", f"{number}%", f"{number},{number * 617 % 1000:03}")


def capital(word: str) -> str:
    """Capitalize the first letter only: ``it's`` becomes ``It's``."""
    return word[:1].upper() + word[1:]


def dress(word: str, number: int, kind: str, start: bool) -> str:
    """Write a word in one of the `KINDS`. Some of them use only its number."""
    if kind == "Capital":
        return capital(word)
    if kind == "UPPER":
        return word.upper()
    if kind == "accents":
        word = word.translate(ACCENTS)
    elif kind == "cyrillic":
        word = word.translate(CYRILLIC)
    elif kind == "chinese":  # the 4096 characters from U+4E00 on
        return chr(0x4E00 + (number >> 24)) + chr(0x4E00 + (number >> 12 & 0xFFF)) + chr(0x4E00 + (number & 0xFFF))
    elif kind == "number":
        return f"{number >> 16}-{number & 0xFFFF:05}"
    return capital(word) if start else word


def spell(numbers: U64, bits: I64) -> list[str]:
    """Spell the lowest `bits` bits of each number with symbols until all bits are used.

    Each symbol represents the bits of its code. The last one may use zeros past the end, so a word uses at least `bits`
    and less than `bits` + `CODE_BITS` bits. Different numbers with the same `bits` give different words.
    """
    register = numbers << (64 - bits).astype(np.uint64)
    left = bits.copy()
    columns: list[npt.NDArray[np.object_]] = []
    while (left > 0).any():
        symbols, sizes = CODES[0] if not columns else CODES[2 - len(columns) % 2]
        code = (register >> np.uint64(64 - CODE_BITS)).astype(np.int64)
        columns.append(symbols[np.where(left > 0, code, 2**CODE_BITS)])
        register <<= sizes[code].astype(np.uint64)
        left -= sizes[code]
    return list(map("".join, zip(*(column.tolist() for column in columns), strict=True))) if columns else []


def _code(table: Mapping[int, Sequence[str]]) -> tuple[npt.NDArray[np.object_], I64]:
    """Return the symbol that each string of `CODE_BITS` bits starts with, and its bits; the last symbol is empty."""
    rows = [(symbol, bits) for bits, symbols in table.items() for symbol in symbols for _ in range(2 ** (6 - bits))]
    return np.array([symbol for symbol, _ in rows] + [""], dtype=np.object_), np.array([bits for _, bits in rows])


CODES = _code(ONSETS), _code(VOWELS), _code(MIDDLES)


def _weight(rank: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    bend = 1 + rank / KNEE
    weight: npt.NDArray[np.float64] = (
        np.sqrt(np.sqrt(np.sqrt(bend))) / bend / (rank + SHIFT)
    )  # bend ** (-7 / 8), see SHIFT and KNEE
    return weight


def _groups() -> tuple[I64, I64]:
    """Return the first ranks and the sizes of the tail's groups. Sizes are powers of two."""
    starts = HEAD << np.arange(RANK_BITS - HEAD.bit_length() + 1)
    sizes = np.repeat(starts // GROUPS, GROUPS)
    return np.repeat(starts, GROUPS) + sizes * np.tile(np.arange(GROUPS), len(starts)), sizes


GROUP_RANKS = _groups()


def rank_weights() -> npt.NDArray[np.float64]:
    """Return the relative frequency of each rank of the head, then of each group of the tail."""
    firsts, sizes = GROUP_RANKS
    centres = (firsts + (sizes - 1) / 2).astype(np.float64)
    return np.concatenate([_weight(np.arange(HEAD, dtype=np.float64)), _weight(centres) * sizes])


class AliasTable:
    """Draws indices by weight in constant time (A. J. Walker 1977; M. D. Vose 1991), with exact integers."""

    def __init__(self, weights: npt.NDArray[np.float64]) -> None:
        parts = [int(weight * 2**40) for weight in weights.tolist()]
        total, self._count = sum(parts), len(parts)
        left = [part * len(parts) for part in parts]  # distributed over slots that hold `total` each
        small = [index for index, part in enumerate(left) if part < total]
        large = [index for index, part in enumerate(left) if part >= total]
        keep, alias = [2**32] * len(parts), list(range(len(parts)))
        while small and large:
            index, donor = small.pop(), large[-1]
            keep[index], alias[index] = (left[index] << 32) // total, donor
            left[donor] -= total - left[index]
            if left[donor] < total:
                small.append(large.pop())
        keep = [min(share, 2**32 - 1) for share in keep]  # a full slot is its own alias
        self._slots = np.array(keep, dtype=np.uint64) << np.uint64(32) | np.array(alias, dtype=np.uint64)

    def __call__(self, bits: U64) -> I64:
        """Return an index per random word: the upper half selects the slot, the lower half the slot or its alias."""
        low = np.uint64(0xFFFFFFFF)
        slot = (bits >> np.uint64(32)) * np.uint64(self._count) >> np.uint64(32)
        entry = self._slots[slot.astype(np.int64)]
        drawn: U64 = np.where((bits & low) < entry >> np.uint64(32), slot, entry & low)
        return drawn.astype(np.int64)


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
