"""`Normalizer`: changes text before it is split into pre-tokens, as the normalizers of HuggingFace tokenizers do.

Unicode's normalization forms and lower case are those of Python, whose Unicode version is `UNICODE_VERSION`. Unicode
never changes the normalization of characters that it has assigned, so versions only differ in newer characters.
HuggingFace tokenizers 0.23 have the normalization forms of Unicode 11 and the lower case of Unicode 17.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Literal, get_args

from bpeflow._util.text import NormalizerName, unknown_name
from bpeflow.errors import ConfigError

#: Start and end of a part of a text, in characters.
Span = tuple[int, int]

_Form = Literal["NFC", "NFD", "NFKC", "NFKD"]

#: The Unicode version that normalizers follow.
UNICODE_VERSION = unicodedata.unidata_version


@dataclass(frozen=True)
class Normalizer:
    """A sequence of steps that are applied to text. Use `load_normalizer` to make one. Without steps, it is false.

    A text is normalized separately between each two special tokens or document separators, which are found before.

    Attributes:
        names: the names of the steps.
    """

    names: tuple[NormalizerName, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.names)

    @property
    def lowers(self) -> bool:
        """Whether a step makes text lower case."""
        return "lowercase" in self.names

    def __call__(self, text: str) -> str:
        """Return the normalized text.

        >>> load_normalizer(["nfkc", "lowercase"])("\ufb01ne ＡＢＣ")
        'fine abc'
        """
        for name in self.names:
            text = _STEPS[name](text)
        return text

    def utf8(self, text: bytes) -> bytes:
        """Return the normalized form of a text in UTF-8: `text` itself if it is normalized.

        Raises `UnicodeDecodeError` if it is not UTF-8.
        """
        if self.keeps_ascii(text):
            return text
        # Line by line: a line end is a starter that is never composed. In most corpora, many lines are ASCII, and need
        # not be decoded. And a single character that *may* have to be composed makes `unicodedata` normalize all of
        # the text at 20 MB/s, to find that it is normalized.
        lowers, changed = self.lowers, False
        lines = text.split(b"\n")
        for number, line in enumerate(lines):
            if lowers or not line.isascii():
                decoded = line.decode()
                normalized = self(decoded)
                if normalized != decoded:
                    lines[number], changed = normalized.encode(), True
        return b"\n".join(lines) if changed else text

    def keeps_ascii(self, text: bytes) -> bool:
        """Return whether no part of `text` is changed, because it is ASCII or there are no steps."""
        return not self.names or (not self.lowers and text.isascii())

    def origins(self, text: str) -> tuple[str, list[Span]]:
        r"""Return the normalized text, and the part of `text` that each of its characters comes from.

        Where several characters become others together, as they are composed or reordered, each of the new characters
        comes from all of them. The starts and the ends of the parts ascend.

        >>> load_normalizer("nfc").origins("ae\u0301")
        ('aé', [(0, 1), (1, 3)])
        """
        spans = [(position, position + 1) for position in range(len(text))]
        for name in self.names:
            pieces: list[str] = []
            origins: list[Span] = []
            for start, end in _blocks(name, text):
                after = _STEPS[name](text[start:end])
                one_by_one = [_STEPS[name](character) for character in text[start:end]]
                if "".join(one_by_one) == after:
                    for span, new in zip(spans[start:end], one_by_one, strict=True):
                        origins += [span] * len(new)
                else:
                    origins += [(spans[start][0], spans[end - 1][1])] * len(after)
                pieces.append(after)
            text, spans = "".join(pieces), origins
        return text, spans


def load_normalizer(names: str | Iterable[str] = ()) -> Normalizer:
    """Return the normalizer of a name or of several, in order. Raises `ConfigError` if a name is unknown."""
    if not isinstance(names, Iterable):
        raise ConfigError(f"normalizer is {names!r}; it must be a name or a list of names")
    known: tuple[NormalizerName, ...] = get_args(NormalizerName)
    found = []
    for given in (names,) if isinstance(names, str) else names:
        if given not in known:
            raise ConfigError(unknown_name("normalizer", given, known))
        found.append(known[known.index(given)])
    return Normalizer(tuple(found))


def _lowercase(text: str) -> str:
    """Return a text in lower case, without regard to the neighbours of a character.

    `str.lower` only differs in the final sigma, for which it looks at the characters around it.
    """
    return text.replace("Σ", "σ").lower()


_FORMS: dict[str, _Form] = {"nfc": "NFC", "nfd": "NFD", "nfkc": "NFKC", "nfkd": "NFKD"}
_DECOMPOSED: dict[str, _Form] = {**_FORMS, "nfc": "NFD", "nfkc": "NFKD"}
_STEPS: dict[str, Callable[[str], str]] = {name: partial(unicodedata.normalize, form) for name, form in _FORMS.items()}
_STEPS["lowercase"] = _lowercase


def _blocks(name: str, text: str) -> Iterator[Span]:
    """Divide a text into the smallest parts that a step changes separately."""
    decomposed = _DECOMPOSED.get(name)
    start = 0
    for position, character in enumerate(text):
        if position > start and (decomposed is None or _begins_block(decomposed, character)):
            yield start, position
            start = position
    if text:
        yield start, len(text)


@cache
def _begins_block(decomposed: _Form, character: str) -> bool:
    """Return whether a character is neither composed with characters before it nor reordered among them.

    It is not if its decomposition begins with a starter that is not the second character of a composition.
    """
    first = unicodedata.normalize(decomposed, character)[0]
    return not unicodedata.combining(first) and first not in _second_starters()


@cache
def _second_starters() -> frozenset[str]:
    """Return the starters that are composed with the character before them."""
    jamo = map(chr, [*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)])  # composed by rule, not by the table
    pairs = (unicodedata.decomposition(chr(code)).split() for code in range(0x20000))
    seconds = {chr(int(pair[1], 16)) for pair in pairs if len(pair) == 2 and not pair[0].startswith("<")}
    return frozenset([*jamo, *(second for second in seconds if not unicodedata.combining(second))])
