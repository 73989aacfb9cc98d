"""Text and ids that come in pieces: what may be encoded or decoded now, and what must wait for more."""

from __future__ import annotations

import codecs
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from numpy.typing import NDArray

from bpeflow.errors import InputTypeError
from bpeflow.pretokenize.regex import Pretokenizer
from bpeflow.tokenizer.special_tokens import SpecialTokens, refuse
from bpeflow.tokenizer.validate import to_utf8

BLOCK_CHARACTERS = 8 * 1024


"""Gathered, and encoded at a time. More: fewer calls; less: less memory, of which a stream has 1 MB for the text, its
UTF-8 form, the ids, and the cache."""


_YIELDED = 1024


"""Ids that are Python numbers at a time: each takes 9 to 18 times as much as in an array."""


def encode_stream(
    texts: Iterable[str], encode: Callable[[bytes], NDArray[Any]], cutter: TextCutter, refused: SpecialTokens
) -> Iterator[int]:
    """The ids of texts that are pieces of one, however it was cut. Raises as `Tokenizer.encode`, when it gets there."""
    pieces = _pieces(_checked(_blocks(texts), refused), cutter)
    # `chain` hands out each id without a Python frame to resume, which takes a third of the time that generators do.
    return chain.from_iterable(numbers for piece in pieces for numbers in _numbers(encode(piece)))


class TextCutter:
    """Takes a text in pieces, and gives it back in pieces that can be encoded each on its own.

    A text may be cut at the end of a special token, and at the pattern's safe cuts (`pretokenize.cuts`) in what lies
    between two special tokens. What comes after the last such place waits for more; so does what may turn out to be a
    special token, or to be a longer one. As no special token lies across a cut, both sides, each read from its start,
    have the special tokens that the whole has.
    """

    def __init__(self, pretokenizer: Pretokenizer, specials: SpecialTokens) -> None:
        self._pretokenizer = pretokenizer
        self._specials = specials
        self._held = b""
        self._new: list[bytes] = []
        self._new_bytes = 0

    def feed(self, text: bytes) -> bytes:
        """Take more of the text, whole characters, and return what may be encoded now."""
        self._new.append(text)
        self._new_bytes += len(text)
        if self._new_bytes < len(self._held):  # a long text without a cut is looked through when it has doubled
            return b""
        data = self.rest()
        cut = self._last_cut(data)
        self._held = data[cut:]
        return data[:cut]

    def rest(self) -> bytes:
        """All that still waits, when there is no more to come."""
        data = b"".join([self._held, *self._new])
        self._held, self._new, self._new_bytes = b"", [], 0
        return data

    def _last_cut(self, data: bytes) -> int:
        start, open_from = 0, self._open_from(data, 0)
        for match in self._specials.matches(data):
            if match.start() >= open_from:
                break
            start = match.end()
            if start > open_from:
                open_from = self._open_from(data, start)
        return start + (self._pretokenizer.find_last_cut(data[start:open_from]) or 0)

    def _open_from(self, data: bytes, start: int) -> int:
        """Where, from `start` on, a special token may begin that goes on behind the end; the end if nowhere."""
        for position in range(max(start, len(data) - self._specials.longest + 1), len(data)):
            if data[position:] in self._specials.beginnings:
                return position
        return len(data)


class StreamDecoder:
    """Decodes ids that come one by one or in pieces; what is not yet a whole character waits for the next ones.

    All it returns, joined, is what decoding all ids at once gives, however they were cut.

    >>> decoder = StreamDecoder(lambda ids: bytes(ids))
    >>> decoder.feed([0xe2, 0x82]), decoder.feed([0xac, 0x21]), decoder.flush()
    ('', '€!', '')
    """

    def __init__(self, decode_bytes: Callable[[Sequence[int] | NDArray[Any]], bytes], errors: str = "replace") -> None:
        """`decode_bytes` gives the bytes of ids; `errors` is what `bytes.decode` takes."""
        self._decode_bytes = decode_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors)

    def feed(self, ids: int | Sequence[int] | NDArray[Any]) -> str:
        """The text that is complete with these ids (or this one)."""
        one = hasattr(ids, "__index__") and not getattr(ids, "ndim", 0)
        return self._decoder.decode(self._decode_bytes([ids] if one else ids))  # type: ignore[arg-type,list-item]

    def flush(self) -> str:
        """End the text: what is left of an incomplete character, as `errors` says. Ready for another text then."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest

    def decode(self, stream: Iterable[int]) -> Iterator[str]:
        """The text of a stream of ids, as soon as it is complete, without empty strings."""
        for token_id in stream:
            text = self.feed(token_id)
            if text:
                yield text
        rest = self.flush()
        if rest:
            yield rest


def _blocks(texts: Iterable[str]) -> Iterator[str]:
    """The same text in pieces of about `BLOCK_CHARACTERS`: small ones gathered, large ones divided."""
    if not isinstance(texts, Iterable):
        raise InputTypeError(f"texts to encode are an iterable of str, not {type(texts).__name__}")
    block, length = io.StringIO(newline=""), 0
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputTypeError(
                f"text to encode is a str, not {type(text).__name__}, at index {index} of the iterable"
            )
        for start in range(0, len(text), BLOCK_CHARACTERS):
            length += block.write(text[start : start + BLOCK_CHARACTERS])
            if length >= BLOCK_CHARACTERS:
                yield block.getvalue()
                block, length = io.StringIO(newline=""), 0
    if length:
        yield block.getvalue()


def _pieces(blocks: Iterable[bytes], cutter: TextCutter) -> Iterator[bytes]:
    for block in blocks:
        yield cutter.feed(block)
    yield cutter.rest()


def _numbers(ids: NDArray[Any]) -> Iterator[list[int]]:
    for start in range(0, len(ids), _YIELDED):
        yield ids[start : start + _YIELDED].tolist()


def _checked(blocks: Iterable[str], refused: SpecialTokens) -> Iterator[bytes]:
    """UTF-8 of blocks of text, after a look for special tokens to refuse, also for those that lie across two blocks."""
    position, before = 0, ""
    for block in blocks:
        data = to_utf8(block, position)
        if refused:
            seen = before + block
            refuse(seen.encode(), refused, position - len(before))
            before = seen[max(len(seen) - refused.longest + 1, 0) :]
        position += len(block)
        yield data
