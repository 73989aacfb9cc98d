"""Text and ids that come in pieces: what may be encoded or decoded now, and what must wait for more."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from numpy.typing import NDArray

GATHERED_BYTES = 64 * 1024
"""Encoded at a time. More: fewer calls; less: less memory, of which a stream has 1 MB."""


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
        return self._decoder.decode(self._decode_bytes([ids] if isinstance(ids, int) else ids))

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
