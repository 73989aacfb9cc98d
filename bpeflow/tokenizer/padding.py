"""`Padding`: the ids of many texts as a matrix."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from bpeflow._util.delimiters import PADDING, end_of_document
from bpeflow._util.text import short_repr
from bpeflow.errors import ConfigError, InputTypeError, SpecialTokenError
from bpeflow.tokenizer.validate import is_integer
from bpeflow.vocab import Vocab

Side = Literal["left", "right"]


@dataclass(frozen=True)
class Padding:
    """How the ids of texts become the rows of a matrix, for `bpeflow.Tokenizer.encode_batch_to_numpy`.

    Attributes:
        length: number of ids in a row; by default as many as the longest text has.
        pad_id: the id that fills a row. By default the special token ``<|pad|>``, ``<pad>`` or ``[PAD]``, or else the
            tokenizer's `eot_token`. The lengths returned with the matrix distinguish padding from text.
        side: the side of a row that is filled: ``"right"``, or ``"left"`` as for generating text.
        truncation: the side on which longer texts are cut off: ``"right"`` or ``"left"``. By default, a text that is
            too long is an error.

    >>> import bpeflow
    >>> tokenizer = bpeflow.Tokenizer({byte: bytes([byte]) for byte in range(256)}, [], ["<|pad|>"])
    >>> matrix, lengths = tokenizer.encode_batch_to_numpy(["a", "abc"], padded=bpeflow.Padding(side="left"))
    >>> matrix
    array([[256, 256,  97],
           [ 97,  98,  99]], dtype=uint16)
    >>> lengths
    array([1, 3])
    """

    length: int | None = None
    pad_id: int | None = None
    side: Side = "right"
    truncation: Side | None = None

    def __post_init__(self) -> None:
        if self.length is not None and not (is_integer(self.length) and 0 < self.length < 1 << 31):
            raise ConfigError(
                f"padding length is {short_repr(self.length)}; need an integer from 1 to 2**31 - 1, or None"
            )
        sides = get_args(Side)
        if self.side not in sides:
            raise ConfigError(f"padding side is {short_repr(self.side)}; need {' or '.join(sides)}")
        if self.truncation not in (None, *sides):
            raise ConfigError(f"truncation is {short_repr(self.truncation)}; need {' or '.join(sides)}, or None")

    @classmethod
    def of(cls, padded: Padding | int | None, vocab: Vocab) -> Padding | None:
        """Return the padding that an argument asks for. The token that ends a document is the last choice for its id.

        Raises:
            ConfigError: the argument is invalid, or the id is not one of the vocabulary.
            InputTypeError: the argument has a wrong type.
            SpecialTokenError: the tokenizer has no special token to pad with.
        """
        if padded is None or padded is False:
            return None
        if padded is not True and not is_integer(padded) and not isinstance(padded, Padding):
            raise InputTypeError(f"padded is {short_repr(padded)}; it must be True, a length or a bpeflow.Padding")
        if padded is True:
            padded = Padding()
        padding = padded if isinstance(padded, Padding) else cls(padded)
        if padding.pad_id is None:
            specials = vocab.special_tokens
            name = next((name for name in PADDING if name in specials), end_of_document(specials))
            if name is None:
                raise SpecialTokenError(
                    "no special token to pad with: give an id, as bpeflow.Padding(pad_id=0), or add a token with "
                    "with_special_tokens(['<|pad|>'])"
                )
            return replace(padding, pad_id=specials[name])
        if not is_integer(padding.pad_id) or not 0 <= padding.pad_id < len(vocab):
            raise ConfigError(f"pad_id is {short_repr(padding.pad_id)}; need an id from 0 to {len(vocab) - 1}")
        return padding

    def pad(self, ids: NDArray[Any], offsets: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the matrix of the ids ``ids[offsets[i]:offsets[i + 1]]`` of each text i, and the lengths of the texts.

        Raises:
            ConfigError: a text is too long, and truncation is off.
        """
        lengths = np.diff(offsets)
        width = int(lengths.max(initial=0)) if self.length is None else self.length
        starts, kept = offsets[:-1], np.minimum(lengths, width)
        if (longer := np.flatnonzero(lengths > width)).size and self.truncation is None:
            raise ConfigError(
                f"at index {longer[0]} of the batch: the text has {lengths[longer[0]]:,} ids, and the length is "
                f"{width:,}; cut such texts with Padding({width}, truncation='right'), or choose a greater length"
            )
        if self.truncation == "left":
            starts = starts + lengths - kept
        matrix = np.full((len(lengths), width), self.pad_id, ids.dtype)
        for row, start, count in zip(matrix, starts.tolist(), kept.tolist(), strict=True):
            row[slice(count) if self.side == "right" else slice(width - count, width)] = ids[start : start + count]
        return matrix, kept
