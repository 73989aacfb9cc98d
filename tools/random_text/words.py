"""How words are written: a different spelling for each rank, in many styles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from random_text.ranks import HEAD, I64, RANK_BITS, U64

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
#: The longest word of the head, in bytes.
WORD_BYTES = 16


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
