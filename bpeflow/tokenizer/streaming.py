"""Text and ids that arrive in pieces: what can be encoded or decoded now, and what must wait for more."""

from __future__ import annotations

import codecs
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from numpy.typing import NDArray

from bpeflow.errors import InputTypeError, PatternTimeoutError, UnknownTokenError, UnmatchedTextError
from bpeflow.pretokenize.cutter import load_cutter
from bpeflow.pretokenize.regex import Pretokenizer
from bpeflow.tokenizer.special_tokens import SpecialTokens, check_disallowed
from bpeflow.tokenizer.validate import to_utf8

#: Characters that are gathered and encoded at a time. More: fewer calls. Fewer: less memory. A stream may use 1 MB for
#: the text, its UTF-8 form, the ids and the cache.
BLOCK_CHARACTERS = 8 * 1024

#: Ids that are Python integers at a time. More: fewer conversions. Fewer: less memory, because an integer takes 9 to 18
#: times as much as an array entry.
_IDS_PER_LIST = 1024


def encode_stream(
    texts: Iterable[str], encode: Callable[[bytes], NDArray[Any]], cutter: TextCutter, disallowed: SpecialTokens
) -> Iterator[int]:
    """Yield the ids of the text that `texts` are the pieces of, however it was cut.

    Raises as `Tokenizer.encode` does, when the stream reaches the error.
    """
    # `chain` yields each id without resuming a Python frame, in a third of the time that nested generators take.
    return chain.from_iterable(_encode_pieces(_cut(_encode_utf8(_blocks(texts), disallowed), cutter), encode))


class TextCutter:
    """Cuts a text that arrives in pieces into new pieces that can be encoded separately.

    A text may be cut at the end of a special token, and at the pattern's safe cuts (see `pretokenize.cuts`) between
    two special tokens. Text after the last possible cut waits for more. So does text that could turn out to be a
    special token, or a longer one than it is so far. No special token spans a cut. So the two sides, each read from its
    start, have the special tokens that the whole has.
    """

    def __init__(self, pretokenizer: Pretokenizer, specials: SpecialTokens) -> None:
        self._cutter = load_cutter(pretokenizer)
        self._specials = specials
        self._held = b""
        self._new: list[bytes] = []
        self._new_bytes = 0

    def feed(self, text: bytes) -> bytes:
        """Add text, which must consist of whole characters, and return the part that can be encoded now."""
        self._new.append(text)
        self._new_bytes += len(text)
        if self._new_bytes < len(self._held):  # search a long text without a cut again only when it has doubled
            return b""
        data = self.flush()
        cut = self._last_cut(data)
        self._held = data[cut:]
        return data[:cut]

    def flush(self) -> bytes:
        """Return the text that is still held. To be called at the end of the text."""
        data = b"".join([self._held, *self._new])
        self._held, self._new, self._new_bytes = b"", [], 0
        return data

    def _last_cut(self, data: bytes) -> int:
        literals = self._specials.literals
        start, undecided = 0, literals.begins_at_end(data, 0)
        for found in literals.matches(data):
            if found.start >= undecided:
                break
            start = found.end
            if start > undecided:
                undecided = literals.begins_at_end(data, start)
        cut = self._cutter and self._cutter.find_cut(data[start:undecided], 0, last=True)
        return start + (cut or 0)


class StreamDecoder:
    """Decodes ids that arrive one by one or in pieces.

    A character whose bytes are not complete yet is held back until the ids with the rest of it arrive. The returned
    strings, joined, are the text that decoding all ids at once returns. `bpeflow.Tokenizer.stream_decoder` makes a
    decoder for a tokenizer.

    >>> from bpeflow import Tokenizer
    >>> tokenizer = Tokenizer({byte: bytes([byte]) for byte in range(256)}, [])
    >>> decoder = tokenizer.stream_decoder()
    >>> [decoder.feed(token_id) for token_id in tokenizer.encode("5 €")]
    ['5', ' ', '', '', '€']
    >>> decoder.flush()
    ''
    """

    def __init__(self, decode_bytes: Callable[[Sequence[int] | NDArray[Any]], bytes], errors: str = "replace") -> None:
        """Make a decoder.

        Args:
            decode_bytes: a function that returns the bytes of ids, such as `Tokenizer.decode_bytes`.
            errors: what to do with bytes that are not UTF-8, as for `bytes.decode`.
        """
        self._decode_bytes = decode_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors)

    def __repr__(self) -> str:
        held, _ = self._decoder.getstate()
        return f"StreamDecoder({held!r} held back, errors={self._decoder.errors!r})"

    def feed(self, ids: int | Sequence[int] | NDArray[Any]) -> str:
        """Add one or more ids and return the text that is complete now.

        Raises:
            UnknownTokenError: an id is not in the vocabulary.
            InputTypeError: an id is not an integer.
        """
        one = hasattr(ids, "__index__") and not getattr(ids, "ndim", 0)
        return self._decoder.decode(self._decode_bytes([ids] if one else ids))  # type: ignore[arg-type,list-item]

    def flush(self) -> str:
        """End the text and return the remains of an incomplete character, treated as `errors` says.

        The decoder is then ready for another text.
        """
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest

    def decode(self, stream: Iterable[int]) -> Iterator[str]:
        """Yield the text of a stream of ids as soon as it is complete, without empty strings.

        Raises:
            InputTypeError: `stream` is not iterable, or, when it is reached, an id is not an integer.
            UnknownTokenError: an id that is reached is not in the vocabulary. The message has its index.

        >>> from bpeflow import StreamDecoder
        >>> list(StreamDecoder(bytes).decode([0x35, 0xE2, 0x82, 0xAC]))
        ['5', '€']
        """
        if isinstance(stream, str) or not isinstance(stream, Iterable):
            raise InputTypeError(f"a stream of ids must be an iterable of integers, not {type(stream).__name__}")
        return self._texts(stream)

    def _texts(self, stream: Iterable[int]) -> Iterator[str]:
        for index, token_id in enumerate(stream):
            try:
                text = self.feed(token_id)
            except (InputTypeError, UnknownTokenError) as error:
                reason = str(error).replace(" at index 0", "", 1)
                raise type(error)(f"at index {index} of the stream: {reason}") from None
            if text:
                yield text
        rest = self.flush()
        if rest:
            yield rest


def _blocks(texts: Iterable[str]) -> Iterator[str]:
    """Gather small texts and divide large ones into blocks of about `BLOCK_CHARACTERS`."""
    block, length = io.StringIO(newline=""), 0
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputTypeError(
                f"text to encode must be a str, not {type(text).__name__}, at index {index} of the iterable"
            )
        for start in range(0, len(text), BLOCK_CHARACTERS):
            length += block.write(text[start : start + BLOCK_CHARACTERS])
            if length >= BLOCK_CHARACTERS:
                yield block.getvalue()
                block, length = io.StringIO(newline=""), 0
    if length:
        yield block.getvalue()


def _encode_utf8(blocks: Iterable[str], disallowed: SpecialTokens) -> Iterator[bytes]:
    """Encode blocks of text as UTF-8. Check them for disallowed special tokens, including those across two blocks."""
    position, tail = 0, ""
    for block in blocks:
        data = to_utf8(block, position)
        if disallowed:
            searched = tail + block
            check_disallowed(searched.encode(), disallowed, position - len(tail))
            tail = searched[max(len(searched) - disallowed.longest + 1, 0) :]
        position += len(block)
        yield data


def _cut(blocks: Iterable[bytes], cutter: TextCutter) -> Iterator[bytes]:
    for block in blocks:
        yield cutter.feed(block)
    yield cutter.flush()


def _encode_pieces(pieces: Iterable[bytes], encode: Callable[[bytes], NDArray[Any]]) -> Iterator[list[int]]:
    position = 0
    for piece in pieces:
        try:
            ids = encode(piece)
        except (PatternTimeoutError, UnmatchedTextError) as error:
            raise type(error)(f"after {position:,} characters of the stream: {error}") from None
        position += len(piece.decode())
        for start in range(0, len(ids), _IDS_PER_LIST):
            yield ids[start : start + _IDS_PER_LIST].tolist()
