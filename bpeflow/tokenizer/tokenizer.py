"""`BaseTokenizer`: text to ids and back, in memory. `bpeflow.Tokenizer` adds training and token files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from bpeflow.errors import ConfigError, InvalidTextError
from bpeflow.formats import gpt2
from bpeflow.formats import registry as formats
from bpeflow.formats.spec import TokenizerSpec
from bpeflow.pretokenize.cuts import Utf8
from bpeflow.pretokenize.regex import load_pretokenizer
from bpeflow.tokenizer.encoder import DEFAULT_CACHE_BYTES, STREAM_CACHE_BYTES
from bpeflow.tokenizer.offsets import Offsets, token_offsets
from bpeflow.tokenizer.parallel import cut_text, group_texts, in_threads
from bpeflow.tokenizer.registry import new_encoder
from bpeflow.tokenizer.special_tokens import (
    NO_SPECIAL_TOKENS,
    SpecialChoice,
    SpecialTokenControl,
    SpecialTokens,
    refuse,
)
from bpeflow.tokenizer.streaming import StreamDecoder, TextCutter, encode_stream
from bpeflow.tokenizer.validate import (
    Ids,
    add_special_tokens,
    for_each,
    joined,
    not_utf8,
    to_utf8,
    utf8_of,
    validate_ids,
    vocab_of,
)
from bpeflow.vocab import Merge, Vocab

_Self = TypeVar("_Self", bound="BaseTokenizer")


class BaseTokenizer:
    """Encodes text with a vocabulary and its merges, and decodes ids. Immutable, thread-safe, and pickles.

    >>> vocab = {byte: bytes([byte]) for byte in range(256)} | {256: b"he", 257: b"llo", 258: b"ll"}
    >>> tokenizer = BaseTokenizer(vocab, [(b"h", b"e"), (b"l", b"l"), (b"ll", b"o")], ["<|endoftext|>"])
    >>> tokenizer.encode("hello<|endoftext|>")
    [256, 257, 259]
    >>> tokenizer.decode([256, 257, 259])
    'hello<|endoftext|>'

    Everywhere, special tokens in the text are taken for themselves, as Stanford CS336 asks, unless a call says
    otherwise with tiktoken's parameters: ``allowed_special`` names those that are (all others are ordinary text), and
    ``disallowed_special`` those whose occurrence is an error, ``"all"`` being all that are not allowed. For text that
    others wrote: ``allowed_special=()``.
    """

    def __init__(
        self,
        vocab: Mapping[int, bytes] | Vocab,
        merges: Iterable[Merge],
        special_tokens: Iterable[str] | None = None,
        pattern: str = "gpt2",
        *,
        whole_tokens: bool = False,
        encoder: str = "auto",
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> None:
        """Make a tokenizer of what a training gives.

        Args:
            vocab: the bytes of each id.
            merges: pairs of bytes, by rank.
            special_tokens: strings that are never split. Those missing from `vocab` are appended to it, in their order.
                Where they overlap in a text, the longest that begins first counts.
            pattern: how text is split into pre-tokens: a name of `bpeflow.pretokenize.NAMED_PATTERNS`, or a regular
                expression. Text that the latter does not match yields no ids.
            whole_tokens: take a pre-token that is a token whole, even where merging would yield something else.
            encoder: ``"native"``, ``"python"``, or ``"auto"``: the native one where there is one.
            cache_bytes: memory for pre-tokens that were met before, for each thread.

        Raises:
            FormatError: ids that are negative or far too large, a byte without a token, merges that do not fit.
            InputTypeError: an argument of a wrong type.
            PatternError: an invalid pattern. ConfigError: an empty special token, an unknown encoder, a negative size.
            NativeUnavailableError: ``encoder="native"`` where there is none.
        """
        whole = add_special_tokens(vocab_of(vocab, merges), special_tokens or ())
        self._start(TokenizerSpec(whole, pattern, whole_tokens), encoder, cache_bytes)

    def _start(self, spec: TokenizerSpec, encoder: str, cache_bytes: int) -> None:
        self._spec = spec
        self._settings = (encoder, cache_bytes)
        self._control = SpecialTokenControl(spec.vocab.special_tokens)
        self._encoder = new_encoder(spec, encoder, cache_bytes)
        self._stream_encoder = self._encoder.with_cache(min(cache_bytes, STREAM_CACHE_BYTES))
        self._pretokenizer = load_pretokenizer(spec.pattern)
        self._every_special = self._control.every
        self._dtype = np.dtype(np.uint16 if len(spec.vocab) <= 1 << 16 else np.uint32)

    @classmethod
    def from_spec(
        cls: type[_Self], spec: TokenizerSpec, *, encoder: str = "auto", cache_bytes: int = DEFAULT_CACHE_BYTES
    ) -> _Self:
        """Make a tokenizer of what a file format holds. Raises as the constructor does."""
        tokenizer = cls.__new__(cls)
        tokenizer._start(spec, encoder, cache_bytes)
        return tokenizer

    @classmethod
    def from_files(
        cls: type[_Self],
        vocab_path: str | Path,
        merges_path: str | Path,
        special_tokens: Iterable[str] | None = None,
        pattern: str | None = None,
        **options: Any,
    ) -> _Self:
        """Read GPT-2's form, ``vocab.json`` and ``merges.txt``. `options`: those of the constructor.

        What ``vocab.json`` has beside bytes and merges is a special token, and so are `special_tokens`. Without
        `pattern` it is that of the run that left the files, as ``bpeflow.json`` beside them tells, and else GPT-2's.
        Raises `FormatError` for files that do not fit.
        """
        vocab = gpt2.load_files(Path(vocab_path), Path(merges_path))
        chosen = gpt2.pattern_beside(Path(vocab_path)) if pattern is None else pattern
        return cls(vocab, vocab.merges, special_tokens, chosen, **options)

    @classmethod
    def load(
        cls: type[_Self], path: str | Path, *, encoder: str = "auto", cache_bytes: int = DEFAULT_CACHE_BYTES
    ) -> _Self:
        """Read a tokenizer: a run folder, one that `save` wrote, or a folder or file of any of `bpeflow.formats`.

        Raises `FormatError` for files that are missing or damaged.
        """
        return cls.from_spec(formats.load(Path(path)), encoder=encoder, cache_bytes=cache_bytes)

    def save(self, path: str | Path, to: str = "gpt2") -> list[Path]:
        """Write the tokenizer into the folder `path`, and return the paths of its files.

        Args:
            path: a folder; or the file itself, where its name ends as those of the format do.
            to: the format: ``"gpt2"`` (vocab.json, merges.txt and bpeflow.json), ``"huggingface"`` (tokenizer.json),
                ``"tiktoken"`` or ``"cs336"``.

        Raises `FormatError` for what the format cannot hold.
        """
        return formats.save(self._spec, Path(path), to)

    def to_spec(self) -> TokenizerSpec:
        """What a file format can hold of this tokenizer: vocabulary, pattern, and how whole tokens are taken."""
        return self._spec

    @property
    def vocab(self) -> Vocab:
        """The vocabulary, with the special tokens that were appended."""
        return self._spec.vocab

    @property
    def merges(self) -> tuple[Merge, ...]:
        """The merges, by rank."""
        return self._spec.vocab.merges

    @property
    def special_tokens(self) -> dict[str, int]:
        """The id of each special token."""
        return dict(self._spec.vocab.special_tokens)

    @property
    def vocab_size(self) -> int:
        """The number of ids: one more than the greatest."""
        return len(self._spec.vocab)

    @property
    def pattern(self) -> str:
        """The pattern's name, or the regular expression."""
        return self._spec.pattern

    @property
    def encoder(self) -> str:
        """The name of the encoder at work: ``"native"`` or ``"python"``."""
        return self._encoder.name

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smaller of uint16 and uint32 that holds every id."""
        return self._dtype

    def encode(
        self, text: str, *, allowed_special: SpecialChoice = "all", disallowed_special: SpecialChoice = ()
    ) -> list[int]:
        """The ids of a text.

        Raises `InputTypeError` for anything but a `str`, `InvalidTextError` for a lone surrogate, and
        `SpecialTokenError` for what `disallowed_special` refuses.
        """
        data = to_utf8(text)
        return self._encoder.encode(data, self._specials(data, allowed_special, disallowed_special))

    def encode_ordinary(self, text: str) -> list[int]:
        """The ids of a text in which special tokens are ordinary text. Raises as `encode` does."""
        return self._encoder.encode(to_utf8(text), NO_SPECIAL_TOKENS)

    def encode_to_array(
        self,
        text: str | Utf8,
        *,
        allowed_special: SpecialChoice = "all",
        disallowed_special: SpecialChoice = (),
        dtype: DTypeLike | None = None,
        threads: int | None = None,
    ) -> NDArray[Any]:
        """The ids of a text as an array. Raises as `encode` does, and `InvalidTextError` for bytes that are not UTF-8.

        Args:
            text: a `str`, or UTF-8 bytes, a file that `mmap` has mapped for instance.
            allowed_special: see the class.
            disallowed_special: see the class.
            dtype: uint16 or uint32; without it the tokenizer's `dtype`. `ConfigError` for one too small.
            threads: take part where the text is large; as many as there are cores unless told. (A text with a custom
                pattern, which may not be cut, is for one.)
        """
        data = utf8_of(text)
        specials = self._specials(data, allowed_special, disallowed_special)
        checked = self._checked_dtype(dtype)
        parts = cut_text(data, self._pretokenizer, specials)
        encoded = in_threads(parts, lambda part: self._encoder.encode_to_array(part, specials, checked), threads)
        try:
            return joined(encoded, len(data), checked)
        except InvalidTextError:
            raise not_utf8(data) from None  # which tells the place in the whole

    def encode_batch(
        self,
        texts: Iterable[str],
        *,
        allowed_special: SpecialChoice = "all",
        disallowed_special: SpecialChoice = (),
        threads: int | None = None,
    ) -> list[list[int]]:
        """The ids of each text, encoded in so many threads (None: one for each core). Raises as `encode` does."""
        batch = for_each(to_utf8, texts)
        specials = self._control.allowed(allowed_special)
        refused = self._control.refused(allowed_special, disallowed_special)
        if refused:
            for_each(lambda data: refuse(data, refused), batch)
        groups = group_texts(batch)
        encoded = in_threads(groups, lambda group: self._encoder.encode_batch(group, specials, self._dtype), threads)
        return [ids for group in encoded for ids in _divide(*group)]

    def encode_with_offsets(
        self,
        text: str,
        *,
        allowed_special: SpecialChoice = "all",
        disallowed_special: SpecialChoice = (),
        byte_offsets: bool = False,
    ) -> tuple[list[int], Offsets]:
        """The ids of a text, and for each the (start, end) of the characters that its bytes belong to.

        A token can begin or end inside a character, which then belongs to the one before or behind it, too. With
        `byte_offsets` they are places in the UTF-8 form, exactly. Raises as `encode` does.

        >>> vocab = {byte: bytes([byte]) for byte in range(256)}
        >>> BaseTokenizer(vocab, []).encode_with_offsets("aé")
        ([97, 195, 169], [(0, 1), (1, 2), (1, 2)])
        """
        data = to_utf8(text)
        specials = self._specials(data, allowed_special, disallowed_special)
        ids = self._encoder.encode(data, specials)
        lengths = self._lengths(data, ids, specials)
        return ids, token_offsets(data, lengths, specials, self._pretokenizer, byte_offsets)

    def encode_iterable(
        self,
        texts: Iterable[str],
        *,
        allowed_special: SpecialChoice = "all",
        disallowed_special: SpecialChoice = (),
    ) -> Iterator[int]:
        """The ids of a text that comes in pieces, such as the lines of an open file; lazily, in bounded memory.

        They are those of the joined pieces, however they were cut. It reads some 8,000 characters ahead, and holds
        less than 1 MB beside the piece that it was given, except where a text has no place for a cut in more than that:
        a word of such a length, or, since nothing is known of a custom pattern, what lies between two special tokens.
        Raises as `encode` does, what concerns the text when the stream gets there.
        """
        specials = self._control.allowed(allowed_special)
        refused = self._control.refused(allowed_special, disallowed_special)
        return encode_stream(
            texts,
            lambda data: self._stream_encoder.encode_to_array(data, specials, self._dtype),
            TextCutter(self._pretokenizer, specials),
            refused,
        )

    def count_tokens(
        self, text: str | Utf8, *, allowed_special: SpecialChoice = "all", disallowed_special: SpecialChoice = ()
    ) -> int:
        """How many ids `encode` gives for a `str`, or for UTF-8 bytes. Raises as `encode` does."""
        data = utf8_of(text)
        return self._encoder.count_tokens(data, self._specials(data, allowed_special, disallowed_special))

    def decode(self, ids: Ids, errors: str = "replace") -> str:
        """The text of ids. `errors`: what `bytes.decode` takes, for bytes that are not UTF-8.

        Raises `UnknownTokenError`, with the id and its place, and `InputTypeError` for what is no id at all.
        """
        return self.decode_bytes(ids).decode("utf-8", errors)

    def decode_bytes(self, ids: Ids) -> bytes:
        """The bytes of ids, exactly: ``decode_bytes(encode(text)) == text.encode()``. Raises as `decode` does."""
        return self._encoder.decode(validate_ids(ids, self.vocab_size))

    def decode_batch(self, batch: Iterable[Ids], errors: str = "replace") -> list[str]:
        """The text of each sequence of ids. Raises as `decode` does."""
        return for_each(lambda ids: self.decode(ids, errors), batch)

    def stream_decoder(self, errors: str = "replace") -> StreamDecoder:
        """A decoder for ids that come in pieces, which holds incomplete characters back."""
        return StreamDecoder(self.decode_bytes, errors)

    def decode_stream(self, ids: Iterable[int], errors: str = "replace") -> Iterator[str]:
        """The text of a stream of ids, each piece as soon as it is complete."""
        return self.stream_decoder(errors).decode(ids)

    def _specials(self, data: Utf8, allowed: SpecialChoice, disallowed: SpecialChoice) -> SpecialTokens:
        if not disallowed:
            return self._every_special if allowed == "all" else self._control.allowed(allowed)
        refuse(data, self._control.refused(allowed, disallowed))
        return self._control.allowed(allowed)

    def _lengths(self, data: bytes, ids: list[int], specials: SpecialTokens) -> list[int]:
        """How many bytes of a text each of its ids stands for."""
        tokens = self.vocab.decoded_tokens
        if all(tokens[token_id] == special for special, token_id in specials.ids.items()):
            return [len(tokens[token_id]) for token_id in ids]
        # An id that a special token shares with other bytes does not tell; ids of their own do.
        apart = SpecialTokens({special: len(tokens) + number for number, special in enumerate(specials.ids)})
        tokens += tuple(specials.ids)
        return [len(tokens[token_id]) for token_id in self._encoder.encode(data, apart)]

    def _checked_dtype(self, dtype: DTypeLike | None) -> np.dtype[Any]:
        if dtype is None:
            return self._dtype
        try:
            wanted = np.dtype(dtype)
        except TypeError:
            raise ConfigError(f"dtype is {dtype!r}; ids are uint16 or uint32") from None
        if wanted not in (np.uint16, np.uint32):
            raise ConfigError(f"dtype is {wanted}; ids are uint16 or uint32")
        if wanted.itemsize < self._dtype.itemsize:
            raise ConfigError(
                f"dtype {wanted} does not hold the ids of a vocabulary of {self.vocab_size:,}; use uint32"
            )
        return wanted

    def __reduce__(self) -> tuple[Callable[..., BaseTokenizer], tuple[type[BaseTokenizer], TokenizerSpec, str, int]]:
        spec = replace(self._spec, vocab=replace(self._spec.vocab))  # without what the vocabulary has worked out
        return _unpickle, (type(self), spec, *self._settings)

    def __repr__(self) -> str:
        specials = f", {len(self.special_tokens)} special" if self.special_tokens else ""
        return f"Tokenizer({self.vocab_size:,} tokens{specials}, pattern={self.pattern!r}, encoder={self.encoder!r})"


def _divide(ids: NDArray[Any], ends: NDArray[np.int64]) -> Iterator[list[int]]:
    last = ends.tolist()
    return map(ids.tolist().__getitem__, map(slice, [0, *last], last))


def _unpickle(cls: type[_Self], spec: TokenizerSpec, encoder: str, cache_bytes: int) -> _Self:
    return cls.from_spec(spec, encoder=encoder, cache_bytes=cache_bytes)
