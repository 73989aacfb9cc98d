"""Special tokens in a text: which a call takes for themselves, which it refuses, and where they stand."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from bpeflow.errors import ConfigError, InputTypeError, SpecialTokenError
from bpeflow.pretokenize.cuts import Utf8

#: Special tokens by name, or all that the tokenizer has.
SpecialChoice = Literal["all"] | Collection[str]
_SHOWN = 5
_KEPT = 32


"""Sets of special tokens that are kept for the next call. Fewer: calls that alternate make them anew; more:
memory, some 10 KB each, where sets come from requests."""


@dataclass(frozen=True, eq=False)
class SpecialTokens:
    """Special tokens to look for in UTF-8 text. Made once for each set in use; compared and hashed by identity.

    Attributes:
        ids: the id of each token, by its UTF-8 bytes; the longest token first, those of one length by their bytes.
    """

    ids: dict[bytes, int]

    @classmethod
    def of(cls, ids: Mapping[str, int]) -> SpecialTokens:
        """Make a set from strings. Raises `ConfigError` for an empty one, and for one with a lone surrogate."""
        encoded = {special_bytes(token): token_id for token, token_id in ids.items()}
        return cls(dict(sorted(encoded.items(), key=lambda item: (-len(item[0]), item[0]))))

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        shown = [token.decode() for token in list(self.ids)[:_SHOWN]]
        return f"SpecialTokens({', '.join(shown)}{', …' if len(self) > _SHOWN else ''})"

    @cached_property
    def longest(self) -> int:
        """Bytes of the longest token; 0 where there is none."""
        return max(map(len, self.ids), default=0)

    @cached_property
    def beginnings(self) -> frozenset[bytes]:
        """What a token may begin with and go on after: every proper, non-empty prefix of every token."""
        return frozenset(token[:end] for token in self.ids for end in range(1, len(token)))

    def matches(self, text: Utf8, start: int = 0) -> Iterator[re.Match[bytes]]:
        """The special tokens of `text` from `start` on: left to right without overlap, the longest where several begin.

        >>> specials = SpecialTokens.of({"<a>": 300, "<a><a>": 301})
        >>> [specials.ids[match.group()] for match in specials.matches(b"x<a><a><a>")]
        [301, 300]
        """
        return self._pattern.finditer(text, start) if self.ids else iter(())

    def first(self, text: Utf8, start: int = 0) -> re.Match[bytes] | None:
        """The first special token of `text` from `start` on."""
        return self._pattern.search(text, start) if self.ids else None

    def lie_across(self, text: Utf8, position: int) -> bool:
        """Whether any special token's bytes stand on both sides of a position, be they taken or part of others."""
        starts = range(max(position - self.longest + 1, 0), position)
        matches = (self._pattern.match(text, start) for start in starts)
        return any(match is not None and match.end() > position for match in matches)

    @cached_property
    def _pattern(self) -> re.Pattern[bytes]:
        return re.compile(b"|".join(map(re.escape, self.ids)))


#: Ordinary text only.
NO_SPECIAL_TOKENS = SpecialTokens({})


class SpecialTokenControl:
    """Turns ``allowed_special`` and ``disallowed_special``, which are named and meant as tiktoken's, into sets.

    ``allowed_special``: the special tokens that are taken for themselves; all others are ordinary text.
    ``disallowed_special``: those whose occurrence anywhere in the text is an error; ``"all"`` means all that are not
    allowed. Thread-safe.
    """

    def __init__(self, ids: Mapping[str, int]) -> None:
        self._ids = dict(ids)
        self.every = SpecialTokens.of(ids)
        self._usual = {frozenset[str](): NO_SPECIAL_TOKENS, frozenset(ids): self.every}
        self._made = dict(self._usual)

    def allowed(self, allowed_special: SpecialChoice) -> SpecialTokens:
        """The special tokens to look for.

        Raises `SpecialTokenError` for a name that is no special token, and `InputTypeError` for a string but "all".
        """
        if isinstance(allowed_special, str) and allowed_special == "all":
            return self.every
        return self._set(self._named(allowed_special, "allowed_special"))

    def refused(self, allowed_special: SpecialChoice, disallowed_special: SpecialChoice) -> SpecialTokens:
        """The special tokens to refuse. Raises as `allowed` does."""
        if isinstance(disallowed_special, str) and disallowed_special == "all":
            if isinstance(allowed_special, str) and allowed_special == "all":
                return NO_SPECIAL_TOKENS
            return self._set(frozenset(self._ids) - self._named(allowed_special, "allowed_special"))
        return self._set(self._named(disallowed_special, "disallowed_special"))

    def _named(self, choice: SpecialChoice, parameter: str) -> frozenset[str]:
        if isinstance(choice, (str, bytes)) or not isinstance(choice, Collection):
            raise InputTypeError(f'{parameter} is {choice!r}; give "all" or a collection of special tokens')
        names = frozenset(choice)
        for name in names - self._ids.keys():
            nearest = difflib.get_close_matches(str(name), self._ids, n=1)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
            raise SpecialTokenError(f"{parameter}: {name!r} is no special token of this tokenizer{hint}")
        return names

    def _set(self, names: frozenset[str]) -> SpecialTokens:
        made = self._made.get(names)
        if made is None:
            if len(self._made) >= _KEPT:
                self._made = dict(self._usual)
            made = self._made.setdefault(names, SpecialTokens.of({name: self._ids[name] for name in names}))
        return made


def refuse(text: Utf8, refused: SpecialTokens, start: int = 0) -> None:
    """Raise `SpecialTokenError` where `text`, which begins at character `start` of the whole, has one of `refused`."""
    match = refused.first(text)
    if match is not None:
        position = start + len(bytes(text[: match.start()]).decode(errors="replace"))
        raise SpecialTokenError(
            f"the text has the special token {bytes(match.group()).decode()!r} at character {position}, which "
            "disallowed_special refuses; name it in allowed_special to take it for itself, or leave it out of "
            "disallowed_special to take it as ordinary text"
        )


def special_bytes(token: str) -> bytes:
    """The UTF-8 form of a special token. Raises `InputTypeError` and `ConfigError` for what cannot be one."""
    if not isinstance(token, str):
        raise InputTypeError(f"special token {token!r} is {type(token).__name__}, not str")
    if not token:
        raise ConfigError("a special token must not be an empty string")
    try:
        return token.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"the special token {token!r} is not valid Unicode: {error.reason}") from None
