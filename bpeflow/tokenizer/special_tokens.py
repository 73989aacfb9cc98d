"""Special tokens in a text: where they are, which of them a call allows, and which it disallows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

from bpeflow._util.delimiters import Literals, special_bytes
from bpeflow._util.text import suggestion
from bpeflow.errors import InputTypeError, SpecialTokenError
from bpeflow.pretokenize.patterns import Utf8

#: A choice of special tokens: some by name, or all that the tokenizer has.
SpecialChoice = Literal["all"] | Collection[str]

#: Number of sets of special tokens that are cached between calls. Fewer: calls that alternate between sets build them
#: again. More: about 10 KB of memory each, if the sets come from requests.
_MAX_CACHED_SETS = 32


#: The most special tokens that an error message lists.
_SHOWN = 8


@dataclass(frozen=True, eq=False)
class SpecialTokens:
    """A set of special tokens to find in UTF-8 text.

    Sets are built once and reused, so they are compared and hashed by identity.

    Attributes:
        ids: the id of each token by its UTF-8 bytes, longest token first, tokens of equal length in order of bytes.
    """

    ids: dict[bytes, int]

    @classmethod
    def of(cls, ids: Mapping[str, int]) -> SpecialTokens:
        """Build a set from strings. Raises `ConfigError` if one is empty or has a lone surrogate."""
        encoded = {special_bytes(token): token_id for token, token_id in ids.items()}
        return cls(dict(sorted(encoded.items(), key=lambda item: (-len(item[0]), item[0]))))

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def literals(self) -> Literals:
        """The tokens, to find them."""
        return Literals(tuple(self.ids))

    @property
    def longest(self) -> int:
        """The length of the longest token in bytes; 0 if the set is empty."""
        return self.literals.longest

    def split(self, text: bytes) -> Iterator[tuple[bytes, int | None]]:
        """Yield ordinary text (with None) and special tokens (with their ids) in turn, ordinary text first and last.

        >>> [*SpecialTokens.of({"<a>": 300}).split(b"x<a>")]
        [(b'x', None), (b'<a>', 300), (b'', None)]
        """
        start = 0
        for found in self.literals.matches(text):
            yield text[start : found.start], None
            token = text[found.start : found.end]
            yield token, self.ids[token]
            start = found.end
        yield text[start:], None

    def spans(self, text: Utf8, position: int) -> bool:
        """Return whether an occurrence of a special token spans a position, even one that `matches` would not find.

        >>> specials = SpecialTokens.of({"ab": 300, "bc": 301})
        >>> [specials.spans(b"abc", position) for position in range(4)]
        [False, True, True, False]
        """
        start = max(position - self.longest + 1, 0)
        near = bytes(text[start : position + self.longest - 1])  # the next special token may be far away, or nowhere
        for found in self.literals.occurrences(near, 0):
            if found.start >= position - start:
                return False
            if found.end > position - start:
                return True
        return False


#: The empty set, with which all text is ordinary.
NO_SPECIAL_TOKENS = SpecialTokens({})


class SpecialTokenControl:
    """Turns the parameters `allowed_special` and `disallowed_special` of a call into sets of special tokens.

    The parameters have tiktoken's names and meanings. `allowed_special` are the special tokens to encode as their ids.
    All others are ordinary text. `disallowed_special` are the special tokens whose occurrence anywhere in the text is
    an error; ``"all"`` means all that are not allowed. Thread-safe.

    Attributes:
        every: the set of all special tokens.
    """

    def __init__(self, ids: Mapping[str, int]) -> None:
        self._ids = dict(ids)
        self.every = SpecialTokens.of(ids)
        self._other_set = lru_cache(_MAX_CACHED_SETS)(self._new_set)

    def _new_set(self, names: frozenset[str]) -> SpecialTokens:
        return SpecialTokens.of({name: self._ids[name] for name in names})

    def allowed(self, allowed_special: SpecialChoice) -> SpecialTokens:
        """Return the special tokens to encode as their ids.

        Raises:
            SpecialTokenError: a name is not a special token.
            InputTypeError: the choice is neither ``"all"`` nor a collection.
        """
        if isinstance(allowed_special, tuple) and not allowed_special:
            return NO_SPECIAL_TOKENS  # for each short text that is untrusted
        return self._set_of(self._names(allowed_special, "allowed_special"))

    def disallowed(self, allowed_special: SpecialChoice, disallowed_special: SpecialChoice) -> SpecialTokens:
        """Return the special tokens whose occurrence is an error. Raises as `allowed` does."""
        names = self._names(disallowed_special, "disallowed_special")
        if isinstance(disallowed_special, str):
            names -= self._names(allowed_special, "allowed_special")
        return self._set_of(names)

    def _names(self, choice: SpecialChoice, parameter: str) -> frozenset[str]:
        if isinstance(choice, str) and choice == "all":
            return frozenset(self._ids)
        if isinstance(choice, (str, bytes)) or not isinstance(choice, Collection):
            example = f", such as {{{choice!r}}}" if isinstance(choice, str) else ""
            raise InputTypeError(
                f'{parameter} is {choice!r}; it must be "all" or a collection of special tokens{example}'
            )
        names = frozenset(choice)
        for name in names - self._ids.keys():
            hint = (
                suggestion(str(name), self._ids)
                or f"; there are: {', '.join(map(repr, [*self._ids][:_SHOWN])) or 'none'}"
            )
            raise SpecialTokenError(f"{parameter}: {name!r} is not a special token of this tokenizer{hint}")
        return names

    def _set_of(self, names: frozenset[str]) -> SpecialTokens:
        if len(names) == len(self._ids):
            return self.every
        return self._other_set(names) if names else NO_SPECIAL_TOKENS


def check_disallowed(text: Utf8, disallowed: SpecialTokens, start: int = 0) -> None:
    """Raise `SpecialTokenError` if `text` has a disallowed special token.

    The position in the message counts characters of a larger text in which `text` starts at character `start`.
    """
    found = disallowed.literals.find(text)
    if found is not None:
        position = start + len(bytes(text[: found.start]).decode(errors="replace"))
        raise SpecialTokenError(
            f"the text has the special token {bytes(text[slice(*found)]).decode()!r} at character {position}, which "
            "disallowed_special forbids; add it to allowed_special to encode it as its id, or remove it from "
            "disallowed_special to encode it as ordinary text"
        )
