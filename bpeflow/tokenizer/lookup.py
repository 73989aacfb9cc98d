"""`TokenLookup`: the part of a tokenizer that answers questions about its vocabulary."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bpeflow._util.text import NormalizerName, Pattern
from bpeflow.errors import InputTypeError, SpecialTokenError
from bpeflow.formats.tokenizer_spec import TokenizerSpec, tokenizer_hash
from bpeflow.vocab import Merge, Vocab

#: The usual names of the token that ends a text, in order of precedence.
END_OF_TEXT = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>")

#: Number of special tokens that an error message lists.
_SPECIAL_TOKENS_IN_ERROR = 5


class TokenLookup:
    """Look-ups in a tokenizer's vocabulary.

    Tokenizers are equal, and have the same hash, if their content is: the vocabulary, the merges, the special tokens,
    the pattern's regular expression and `whole_tokens`.

    >>> from bpeflow import Tokenizer
    >>> tokenizer = Tokenizer.train(iter(["low low low", "lower"]), vocab_size=258)
    >>> len(tokenizer), tokenizer.vocab[257], "ow" in tokenizer
    (258, b'ow', True)
    >>> tokenizer.token_to_id("ow"), tokenizer.id_to_token(257), tokenizer.eot_token
    (257, b'ow', 256)
    """

    _spec: TokenizerSpec

    def to_spec(self) -> TokenizerSpec:
        """Return what a tokenizer file can hold: the vocabulary, the pattern, `whole_tokens` and the normalizer."""
        return self._spec

    @property
    def vocab(self) -> Vocab:
        """The vocabulary, including the special tokens that were appended: a mapping from id to bytes."""
        return self._spec.vocab

    @property
    def merges(self) -> tuple[Merge, ...]:
        """The merges by rank."""
        return self._spec.vocab.merges

    @property
    def special_tokens(self) -> dict[str, int]:
        """The id of each special token."""
        return dict(self._spec.vocab.special_tokens)

    @property
    def vocab_size(self) -> int:
        """The number of ids, including unused ones, as `len`."""
        return len(self._spec.vocab)

    #: `vocab_size` under tiktoken's name.
    n_vocab = vocab_size

    @property
    def pattern(self) -> Pattern:
        """The pattern's name or regular expression, or several."""
        return self._spec.pattern

    @property
    def normalizer(self) -> tuple[NormalizerName, ...]:
        """The names of the normalizers that change text, in this order, before it is split; empty if there are none."""
        return self._spec.normalizer

    @property
    def eot_token(self) -> int:
        """The id of the special token that ends a text.

        That is ``<|endoftext|>``, as in tiktoken, or else ``<|end_of_text|>``, ``</s>`` or ``<eos>``, or else the only
        special token.

        Raises:
            SpecialTokenError: there is none, or it is one of several with other names.
        """
        ids = self._spec.vocab.special_tokens
        for name in END_OF_TEXT:
            if name in ids:
                return ids[name]
        if len(ids) == 1:
            return next(iter(ids.values()))
        if not ids:
            raise SpecialTokenError(
                "the tokenizer has no special token to end a text: add one with with_special_tokens(['<|endoftext|>'])"
            )
        listed = ", ".join([*ids][:_SPECIAL_TOKENS_IN_ERROR])
        more = ", …" if len(ids) > _SPECIAL_TOKENS_IN_ERROR else ""
        raise SpecialTokenError(
            f"none of the special tokens {listed}{more} is known to end a text: look up the one that does, "
            "as in special_tokens['…']"
        )

    def token_to_id(self, token: str | bytes) -> int | None:
        """Return the id of a token, or None if there is no such token.

        Args:
            token: a token's bytes, or its text (``" the"``, not the printable form ``"Ġthe"``). Text that is a special
                token means that one.

        Raises:
            InputTypeError: the token is neither `str` nor `bytes`.
        """
        vocab = self._spec.vocab
        if isinstance(token, str):
            if token in vocab.special_tokens:
                return vocab.special_tokens[token]
            token = token.encode("utf-8", "surrogatepass")
        if not isinstance(token, bytes):
            raise InputTypeError(f"a token is str or bytes, not {type(token).__name__}; for an id use id_to_token")
        return vocab.token_ids.get(token)

    def id_to_token(self, token_id: int) -> bytes | None:
        """Return the bytes of an id, or None if the id is unknown or unused."""
        return self._spec.vocab.get(token_id) or None

    def __contains__(self, token: str | bytes) -> bool:
        return self.token_to_id(token) is not None

    def __len__(self) -> int:
        return len(self._spec.vocab)

    def __eq__(self, other: object) -> bool:
        return self._hash == other._hash if isinstance(other, TokenLookup) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._hash)

    @cached_property
    def _hash(self) -> str:
        return tokenizer_hash(self._spec)

    @cached_property
    def _skipped(self) -> NDArray[np.bool_]:
        """Whether each id is skipped with `skip_special_tokens`; one entry more, False, is for unknown ids."""
        skipped, (_, ordinary) = np.zeros(len(self) + 1, np.bool_), self._spec.vocab.packed()
        skipped[[i for i in self._spec.vocab.special_tokens.values() if not ordinary[i]]] = True
        return skipped

    def _without_special_tokens(self, ids: NDArray[Any]) -> NDArray[Any]:
        kept: NDArray[Any] = ids[~self._skipped.take(ids, mode="clip")]
        return kept
