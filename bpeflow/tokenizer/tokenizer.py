"""`Tokenizer`: text to ids and back. It checks arguments and leaves the work to its encoder and to other modules here.

What is more than text in memory reaches beyond this room: to files by a late import, as text needs no formats, and to
the rooms above (training, token files, explanations) through the package's own names, which are imported on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

import bpeflow
from bpeflow._util.delimiters import end_of_document
from bpeflow._util.text import NormalizerName, Pattern, UnmatchedPolicy, as_path, unknown_name
from bpeflow.errors import (
    ConfigError,
    InputTypeError,
    NativeUnavailableError,
    SpecialTokenError,
    UnknownTokenError,
)
from bpeflow.formats.tokenizer_spec import TokenizerSpec, add_special_tokens, tokenizer_hash
from bpeflow.keywords import EncodeKeywords, TokenizerKeywords, TransformersKeywords, takes_settings
from bpeflow.pretokenize.patterns import Utf8
from bpeflow.tokenizer.encoder import DEFAULT_CACHE_BYTES, STREAM_CACHE_BYTES, EncodedTexts, Encoder
from bpeflow.tokenizer.native_encoder import NativeEncoder
from bpeflow.tokenizer.offsets import Offsets, token_lengths, token_offsets
from bpeflow.tokenizer.parallel import concatenate, count_ids, encode_text, encode_texts
from bpeflow.tokenizer.special_tokens import (
    NO_SPECIAL_TOKENS,
    SpecialChoice,
    SpecialTokenControl,
    SpecialTokens,
    check_disallowed,
)
from bpeflow.tokenizer.streaming import StreamDecoder, TextCutter, encode_stream
from bpeflow.tokenizer.validate import (
    NO_BATCH,
    Ids,
    as_utf8,
    documents_of,
    for_each,
    is_integer,
    list_of,
    make_vocab,
    smallest_dtype,
    to_utf8,
    validate_dtype,
    validate_ids,
)
from bpeflow.vocab import Merge, Vocab

if TYPE_CHECKING:
    import tiktoken
    import tokenizers
    import transformers
    from typing_extensions import Self, Unpack

    from bpeflow.tokenizer.padding import Padding

#: Names of the encoders, best first. ``auto`` takes the first that is available.
EncoderName = Literal["auto", "native", "python"]
ENCODERS: tuple[EncoderName, ...] = ("native", "python")


class Tokenizer:
    """Encodes text to ids with a vocabulary and its merges, and decodes ids. Immutable, thread-safe and picklable.

    `train`, `load` and `from_files` make a tokenizer, as does the constructor from a vocabulary and merges. The class
    is not for subclassing: of these, only the constructor calls `__init__`.

    Special tokens in a text are encoded as their ids, as Stanford CS336 asks. The arguments `allowed_special` and
    `disallowed_special` of `encode` change that; they mean the same as in tiktoken. For untrusted text pass
    ``allowed_special=()``.

    Tokenizers are equal, and have the same hash, if their content is: the vocabulary, the merges, the special tokens,
    the pattern's regular expression, the normalizer and `whole_tokens`.

    >>> from bpeflow import Tokenizer
    >>> tokenizer = Tokenizer.train(iter(["low low low", "lower"]), vocab_size=258)
    >>> tokenizer.encode("low<|endoftext|>")
    [108, 257, 256]
    >>> tokenizer.decode([108, 257, 256])
    'low<|endoftext|>'
    >>> tokenizer.encode("<|endoftext|>", allowed_special=())[:3]
    [60, 124, 101]
    >>> tokenizer.decode([108, 257, tokenizer.eot_token], skip_special_tokens=True)
    'low'
    >>> len(tokenizer), "ow" in tokenizer, tokenizer.token_to_id("ow"), tokenizer.vocab[257]
    (258, True, 257, b'ow')
    """

    def __init__(
        self,
        vocab: Mapping[int, bytes] | Vocab,
        merges: Iterable[Merge],
        special_tokens: str | Iterable[str] | None = None,
        pattern: str | Sequence[str] | None = None,
        *,
        unmatched: UnmatchedPolicy | None = None,
        normalizer: str | Iterable[str] | None = None,
        whole_tokens: bool = False,
        encoder: EncoderName = "auto",
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> None:
        """Make a tokenizer from a vocabulary and merges, as `bpeflow.train_bpe` returns them.

        Args:
            vocab: the bytes of each id.
            merges: pairs of bytes by rank.
            special_tokens: strings that are never split. Those missing from `vocab` are appended to it in their order.
                In a text, overlaps are resolved leftmost-longest.
            pattern: how text is split into pre-tokens: a name such as ``"gpt2"`` or ``"tekken"``, a regular expression,
                or a list. Each pattern of a list splits the pieces of the previous one. By default the pattern that a
                `Vocab` was trained with, else ``"gpt2"``.
            unmatched: what to do with text that a regular expression does not match: ``"isolate"`` (each stretch
                between two matches is a pre-token), ``"drop"`` (it yields no ids), or ``"error"``; by default as the
                `Vocab` was trained, else ``"isolate"``.
            normalizer: what is applied to the text between special tokens before it is split: ``"nfc"``, ``"nfd"``,
                ``"nfkc"``, ``"nfkd"``, ``"lowercase"``, or several in order; by default as the `Vocab` was trained,
                else nothing. Decoding then returns the normalized text.
            whole_tokens: whether a pre-token that is a token keeps its id, even if merging would yield other ids.
            encoder: ``"native"``, ``"python"``, or ``"auto"`` for the native one if it is available.
            cache_bytes: size of the cache of merged pre-tokens, in bytes. Threads share three quarters of it. When this
                part is full, each thread adds a private cache of a quarter of the size.

        Raises:
            FormatError: an id is negative or far too large, a byte has no token, or a merge does not fit.
            InputTypeError: an argument has a wrong type.
            PatternError: the pattern is invalid.
            ConfigError: a special token is empty, the encoder, `unmatched` or a normalizer is unknown, or the
                cache size is negative.
            NativeUnavailableError: ``encoder="native"`` is not available.
        """
        full_vocab = add_special_tokens(make_vocab(vocab, merges), special_tokens or ())
        self._set_up(TokenizerSpec.of(full_vocab, pattern, unmatched, whole_tokens, normalizer), encoder, cache_bytes)

    def _set_up(self, spec: TokenizerSpec, encoder: EncoderName, cache_bytes: int) -> None:
        self._spec = spec
        self._options: dict[str, Any] = {"encoder": encoder, "cache_bytes": cache_bytes}
        self._control = SpecialTokenControl(spec.vocab.special_tokens)
        self._encoder = new_encoder(spec, encoder, cache_bytes)
        self._stream_encoder = self._encoder.with_cache(min(cache_bytes, STREAM_CACHE_BYTES))
        self._pretokenizer = spec.pretokenizer
        self._every_special = self._control.every
        self._tokens = len(spec.vocab)
        self._dtype = smallest_dtype(self._tokens)

    # ---- making, loading and saving ----

    @classmethod
    @takes_settings
    def train(
        cls,
        corpus: str | Path | Iterable[str | Path | bytes | Mapping[str, Any]],
        vocab_size: int,
        *,
        progress: bool = False,
        observer: bpeflow.Observer | None = None,
        **settings: Unpack[TokenizerKeywords],
    ) -> Self:
        """Train a tokenizer.

        Args:
            corpus: a text file, a folder, a glob, a list of these, or documents, as for `bpeflow.count`.
            vocab_size: number of entries in the vocabulary: 256 bytes, special tokens and merges.
            progress: show progress on standard error, or in the notebook.
            observer: progress callbacks, instead.
            settings: any other settings, which `bpeflow config` describes, except `vocab_sizes` and `skip_merge`. With
                `out_dir` the run is written to that folder, and `load` reads it from there.

        Raises:
            ConfigError: a setting is unknown, missing or invalid.
            CorpusError: an input is missing, unreadable, or not UTF-8.
            BpeflowError: other failures, as for `bpeflow.train`.
        """
        if settings.get("skip_merge"):
            raise ConfigError("skip_merge leaves no vocabulary for a tokenizer; use bpeflow.train or bpeflow.count")
        trained = bpeflow.train({**settings, "input": corpus, "vocab_size": vocab_size}, observer, progress=progress)
        return cls.from_spec(trained.tokenizer.to_spec())

    @classmethod
    @takes_settings
    def train_from_iterator(
        cls,
        iterator: Iterable[str | bytes | Mapping[str, Any] | Sequence[str]],
        vocab_size: int,
        *,
        progress: bool = False,
        observer: bpeflow.Observer | None = None,
        **settings: Unpack[TokenizerKeywords],
    ) -> Self:
        """Train a tokenizer on documents, or on lists of documents, from any iterable.

        Args:
            iterator: the documents, as for `bpeflow.count`. A list or tuple in it is a batch of them, as batch
                iterators for HuggingFace tokenizers yield.
            vocab_size: as for `train`; also the following.
            progress: as for `train`.
            observer: as for `train`.
            settings: as for `train`.

        Raises:
            ConfigError: a setting is unknown, missing or invalid.
            CorpusError: there are no documents, or one is not UTF-8.
            InputTypeError: `iterator` is not iterable, or a document has a wrong type.
            BpeflowError: other failures, as for `bpeflow.train`.

        >>> from bpeflow import Tokenizer
        >>> Tokenizer.train_from_iterator([["low low", "low"], ["lower"]], vocab_size=258).merges
        ((b'o', b'w'),)
        """
        if isinstance(iterator, (str, bytes)) or not isinstance(iterator, Iterable):
            raise InputTypeError(
                f"the iterator of documents is {type(iterator).__name__}; for files use Tokenizer.train(path)"
            )
        return cls.train(documents_of(iterator), vocab_size, progress=progress, observer=observer, **settings)

    @classmethod
    def from_spec(
        cls, spec: TokenizerSpec, *, encoder: EncoderName = "auto", cache_bytes: int = DEFAULT_CACHE_BYTES
    ) -> Self:
        """Make a tokenizer from the content of a tokenizer file. Raises as the constructor does."""
        tokenizer = cls.__new__(cls)
        tokenizer._set_up(spec, encoder, cache_bytes)
        return tokenizer

    @classmethod
    def from_files(
        cls,
        vocab_filepath: str | Path,
        merges_filepath: str | Path,
        special_tokens: str | Iterable[str] | None = None,
        pattern: str | Sequence[str] | None = None,
        *,
        whole_tokens: bool = False,
        encoder: EncoderName = "auto",
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> Self:
        """Read a vocabulary and its merges: GPT-2's ``vocab.json`` and ``merges.txt``.

        The special tokens are those of the ``bpeflow.json`` beside the vocabulary. Without one they are all entries
        that are neither bytes nor merges.

        Args:
            vocab_filepath: the path of ``vocab.json``.
            merges_filepath: the path of ``merges.txt``.
            special_tokens: further special tokens, as for the constructor.
            pattern: the pattern; by default that of ``bpeflow.json``, or of the published tokenizer with these merges,
                or else GPT-2's. The normalizer always comes from there.
            whole_tokens: as for the constructor; also if ``bpeflow.json`` says so.
            encoder: as for the constructor.
            cache_bytes: as for the constructor.

        Raises:
            FormatError: a file is damaged, or the files do not fit each other.
        """
        from bpeflow.formats import gpt2

        vocab_path, merges_path = as_path(vocab_filepath, "vocab_filepath"), as_path(merges_filepath, "merges_filepath")
        read = gpt2.load_pair(vocab_path, merges_path, "gpt2")
        vocab = add_special_tokens(read.vocab, special_tokens or ())
        spec = TokenizerSpec.of(vocab, pattern, whole_tokens=whole_tokens or read.whole_tokens)
        return cls.from_spec(spec, encoder=encoder, cache_bytes=cache_bytes)

    @classmethod
    def load(
        cls,
        source: str | Path | object,
        pattern: str | Sequence[str] | None = None,
        special_tokens: str | Mapping[str, int | None] | Iterable[str] | None = None,
        *,
        known: str | None = None,
        normalizer: str | Iterable[str] | None = "auto",
        encoder: EncoderName = "auto",
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> Self:
        """Read a tokenizer from a run folder, from a folder or file in any of `bpeflow.formats`, or from an object.

        `from_file` is an alias, and `from_pretrained` also takes published names. Some files, such as tiktoken's, lack
        the pattern and the special tokens. Published ones are recognised by their content; for any other such file,
        give `pattern` and `special_tokens`.

        Args:
            source: the path of the folder or the file; or a tokenizer of tiktoken, of HuggingFace tokenizers, or of
                transformers (a fast one).
            pattern: the pattern, as for the constructor; by default the source's own.
            special_tokens: special tokens to add to the source's own: a list, or a mapping to their ids. Those without
                an id are numbered after the greatest id.
            known: the name of a published tokenizer (a key of `bpeflow.formats.published.PUBLISHED`), to use its
                pattern and special tokens. Needed for ``p50k_edit`` and ``o200k_harmony``, which share their files with
                other tokenizers.
            normalizer: as for the constructor; by default the source's own (published files are recognised by their
                content). None for none, for instance to use Qwen's merges without NFC.
            encoder: as for the constructor.
            cache_bytes: as for the constructor.

        Raises:
            ConfigError: `known` or the normalizer is unknown, or the id of a special token is not free.
            FormatError: files are damaged, nothing says which pattern they are used with, or bpeflow does not support
                the tokenizer.
            InputTypeError: `source` is neither a path nor a tokenizer.
            PatternError: the pattern is invalid.
            TokenizerNotFoundError: files are missing; also a `FileNotFoundError`.
        """
        from bpeflow.formats import any_format

        spec = any_format.load(source, pattern, special_tokens or (), known, normalizer)
        return cls.from_spec(spec, encoder=encoder, cache_bytes=cache_bytes)

    from_file = load

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        pattern: str | Sequence[str] | None = None,
        special_tokens: str | Mapping[str, int | None] | Iterable[str] | None = None,
        *,
        revision: str | None = None,
        known: str | None = None,
        normalizer: str | Iterable[str] | None = "auto",
        encoder: EncoderName = "auto",
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> Self:
        """Read a published tokenizer by its name.

        A path that exists is read as by `load`. Encodings of tiktoken (``"gpt2"``, ``"cl100k_base"``, …) are read from
        its cache, or else downloaded by the package `tiktoken`. Any other name is a repository of the HuggingFace hub,
        such as ``"Qwen/Qwen3-8B"``; `huggingface_hub` (``pip install 'bpeflow[hub]'``) downloads it to its cache.

        Args:
            name: the name, or a path.
            pattern: as for `load`; also the following.
            special_tokens: as for `load`.
            revision: a branch, a tag or a commit of the hub.
            known: as for `load`.
            normalizer: as for `load`.
            encoder: as for the constructor.
            cache_bytes: as for the constructor.

        Raises:
            TokenizerNotFoundError: there is no such tokenizer, or it cannot be downloaded. The message has the remedy.
            ConfigError: as for `load`; also the following.
            FormatError: as for `load`.
            InputTypeError: as for `load`.
            PatternError: as for `load`.
        """
        from bpeflow.formats import hub

        found, published = hub.find_pretrained(name, revision)
        return cls.load(
            found,
            pattern,
            special_tokens,
            known=known or published,
            normalizer=normalizer,
            encoder=encoder,
            cache_bytes=cache_bytes,
        )

    @takes_settings
    def save(
        self,
        path: str | Path,
        format: Literal["gpt2", "huggingface", "hf", "tiktoken"] | None = None,  # noqa: A002
        *,
        overwrite: bool = False,
        **options: Unpack[TransformersKeywords],
    ) -> list[Path]:
        """Write the tokenizer to files.

        Args:
            path: a folder, or a file whose name has the format's ending.
            format: ``"gpt2"`` (vocab.json, merges.txt and bpeflow.json), ``"huggingface"`` (tokenizer.json, and in a
                folder the files that transformers reads beside it; ``"hf"`` for short) or ``"tiktoken"``. By default
                the format of the file's ending (``.json``, ``.tiktoken``), and ``"gpt2"`` for a folder.
            overwrite: whether to replace a file that is there, or the tokenizer in the folder, with its files of all
                formats.
            options: for a folder in the ``"huggingface"`` format: the special tokens `eos`, `bos` and `pad`, `add_bos`,
                `chat_template` and `max_length`, as for `bpeflow.config.TransformersSettings`.

        Returns:
            The paths of the files.

        Raises:
            ConfigError: the format is unknown, or the options do not fit it or the tokenizer.
            FormatError: the format cannot represent the tokenizer.
            AlreadyExistsError: there is such a file already, or the folder holds a tokenizer in any format. The folder
                of a training run is only written to by that run.
            OSError: a file cannot be written.
        """
        from bpeflow.formats import any_format

        return any_format.save(self._spec, as_path(path, "path"), format, overwrite, options)

    def to_tiktoken(self, name: str = "bpeflow") -> tiktoken.Encoding:
        """Return the tokenizer as a `tiktoken.Encoding` of this name.

        Raises:
            MissingLibraryError: tiktoken is not installed.
            FormatError: tiktoken would encode some text differently.
        """
        from bpeflow.formats import live

        encoding: tiktoken.Encoding = live.to_tiktoken(self._spec, name)
        return encoding

    def to_tokenizers(self) -> tokenizers.Tokenizer:
        """Return the tokenizer as one of HuggingFace tokenizers. Raises as `to_tiktoken` does."""
        from bpeflow.formats import live

        converted: tokenizers.Tokenizer = live.to_tokenizers(self._spec)
        return converted

    @takes_settings
    def to_transformers(self, **options: Unpack[TransformersKeywords]) -> transformers.PreTrainedTokenizerFast:
        """Return the tokenizer as one of transformers, with the `options` of `save`. Raises as `to_tiktoken` does."""
        from bpeflow.formats import live

        converted: transformers.PreTrainedTokenizerFast = live.to_transformers(self._spec, options)
        return converted

    def with_special_tokens(self, special_tokens: str | Iterable[str]) -> Self:
        """Return a tokenizer with further special tokens, numbered after the greatest id.

        A string that is a token already keeps its id. Raises as the constructor does.

        >>> from bpeflow import Tokenizer
        >>> tokenizer = Tokenizer({byte: bytes([byte]) for byte in range(256)}, [], ["<|endoftext|>"])
        >>> tokenizer.with_special_tokens(["<|user|>", "<|assistant|>"]).special_tokens
        {'<|endoftext|>': 256, '<|user|>': 257, '<|assistant|>': 258}
        """
        spec = replace(self._spec, vocab=add_special_tokens(self.vocab, special_tokens))
        return type(self).from_spec(spec, **self._options)

    def to_spec(self) -> TokenizerSpec:
        """Return what a tokenizer file can hold: the vocabulary, the pattern, `whole_tokens` and the normalizer."""
        return self._spec

    def __reduce__(self) -> tuple[Callable[..., Self], tuple[TokenizerSpec]]:
        return partial(type(self).from_spec, **self._options), (self._spec,)

    # ---- vocabulary ----

    @property
    def vocab(self) -> Vocab:
        """The vocabulary, including the special tokens that were appended: a mapping from id to bytes."""
        return self._spec.vocab

    @property
    def merges(self) -> tuple[Merge, ...]:
        """The merges by rank."""
        return self.vocab.merges

    @property
    def special_tokens(self) -> dict[str, int]:
        """The id of each special token."""
        return dict(self.vocab.special_tokens)

    @property
    def vocab_size(self) -> int:
        """The number of ids, including unused ones, as `len`."""
        return self._tokens

    #: `vocab_size` under tiktoken's name.
    n_vocab = vocab_size

    @property
    def pattern(self) -> Pattern:
        """The pattern's name or regular expression, or several."""
        return self._spec.pattern

    @property
    def unmatched(self) -> UnmatchedPolicy:
        """What happens to text that the pattern does not match: ``"error"``, ``"isolate"`` or ``"drop"``."""
        return self._spec.unmatched

    @property
    def normalizer(self) -> tuple[NormalizerName, ...]:
        """The names of the normalizers that change text, in this order, before it is split; empty if there are none."""
        return self._spec.normalizer

    @property
    def encoder(self) -> str:
        """The name of the encoder in use: ``"native"`` or ``"python"``."""
        return self._encoder.name

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smaller of uint16 and uint32 that can hold every id."""
        return self._dtype

    @property
    def eot_token(self) -> int:
        """The id of the special token that ends a document, in token files, too, unless another one is given.

        That is ``<|endoftext|>``, as in tiktoken, or else ``<|end_of_text|>``, ``</s>`` or ``<eos>``. Without any of
        them it is the first special token, skipping tokens named like the start or padding of a text (``<|pad|>``).

        Raises:
            SpecialTokenError: there is none.
        """
        ids = self.vocab.special_tokens
        name = end_of_document(ids)
        if name is None:
            raise SpecialTokenError(
                "the tokenizer has no special token to end a text: add one with with_special_tokens(['<|endoftext|>'])"
            )
        return ids[name]

    def token_to_id(self, token: str | bytes) -> int | None:
        """Return the id of a token, or None if there is no such token.

        Args:
            token: a token's bytes, or its text (``" the"``, not the printable form ``"Ġthe"``). The text of a special
                token gives the id of the special token.

        Raises:
            InputTypeError: the token is neither `str` nor `bytes`.
        """
        if isinstance(token, str):
            if token in self.vocab.special_tokens:
                return self.vocab.special_tokens[token]
            token = token.encode("utf-8", "surrogatepass")
        if not isinstance(token, bytes):
            raise InputTypeError(f"a token is str or bytes, not {type(token).__name__}; for an id use id_to_token")
        return self.vocab.token_ids.get(token)

    def id_to_token(self, token_id: int) -> bytes | None:
        """Return the bytes of an id, or None if the id is unknown or unused.

        Raises:
            InputTypeError: the id is not an integer.
        """
        if not is_integer(token_id):
            raise InputTypeError(f"an id is an integer, not {type(token_id).__name__}; for a token use token_to_id")
        return self.vocab.get(token_id) or None

    def __contains__(self, token: str | bytes) -> bool:
        return self.token_to_id(token) is not None

    def __len__(self) -> int:
        return self._tokens

    def __eq__(self, other: object) -> bool:
        return self._hash == other._hash if isinstance(other, Tokenizer) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._hash)

    @cached_property
    def _hash(self) -> str:
        return tokenizer_hash(self._spec)

    def __repr__(self) -> str:
        specials = f", {len(self.special_tokens)} special" if self.special_tokens else ""
        normalizer = f", normalizer={', '.join(self.normalizer)!r}" if self.normalizer else ""
        pattern = f", pattern={self.pattern!r}{normalizer}"
        return f"Tokenizer({self.vocab_size:,} tokens{specials}{pattern}, encoder={self.encoder!r})"

    # ---- encoding ----

    def encode(
        self,
        text: str,
        *,
        allowed_special: SpecialChoice = "all",
        disallowed_special: SpecialChoice = (),
    ) -> list[int]:
        """Return the ids of a text.

        Args:
            text: the text.
            allowed_special: special tokens to encode as their ids, or ``"all"``. Other special tokens are ordinary
                text. Pass ``()`` for untrusted text.
            disallowed_special: special tokens whose occurrence is an error; ``"all"`` means all that are not allowed.

        Raises:
            InputTypeError: an argument has a wrong type.
            InvalidTextError: the text has a lone surrogate.
            UnmatchedTextError: the pattern does not match all of the text, and `unmatched` is ``"error"``.
            PatternTimeoutError: the pattern takes too long, as a pattern from an untrusted file may.
            SpecialTokenError: the text has a disallowed special token, or a name is not a special token.
        """
        data = to_utf8(text)
        if allowed_special == "all" and not disallowed_special:  # without a call, which a short text would notice
            return self._encoder.encode(data, self._every_special)
        return self._encoder.encode(data, self._specials(data, allowed_special, disallowed_special))

    def encode_ordinary(self, text: str) -> list[int]:
        """Return the ids of a text, with special tokens as ordinary text. Raises as `encode` does."""
        return self._encoder.encode(to_utf8(text), NO_SPECIAL_TOKENS)

    def encode_to_numpy(
        self,
        text: str | Utf8 | NDArray[np.uint8],
        *,
        allowed_special: SpecialChoice = "all",
        disallowed_special: SpecialChoice = (),
        dtype: DTypeLike | None = None,
        num_threads: int | None = None,
    ) -> NDArray[Any]:
        """Return the ids of a text as an array. Large texts are encoded in several threads.

        Args:
            text: a `str`, or UTF-8 bytes: `bytes`, an array of uint8, or a memory-mapped file.
            allowed_special: as for `encode`.
            disallowed_special: as for `encode`.
            dtype: uint16 or uint32; by default `dtype` of the tokenizer.
            num_threads: by default one per core. With a pattern that cannot be compiled, a text cannot be cut, so it is
                encoded in one thread.

        Raises:
            ConfigError: `dtype` is too small or neither of the two, or `num_threads` is less than 1.
            InvalidTextError: bytes are not UTF-8, or the text has a lone surrogate.
            InputTypeError: as for `encode`.
            SpecialTokenError: as for `encode`.
        """
        data = as_utf8(text)
        specials = self._specials(data, allowed_special, disallowed_special)
        ids_dtype = self._dtype if dtype is None else validate_dtype(dtype, self._tokens)
        return encode_text(self._encoder, data, specials, self._pretokenizer, ids_dtype, num_threads)

    def encode_batch(
        self,
        texts: Iterable[str],
        *,
        allowed_special: SpecialChoice = "all",
        disallowed_special: SpecialChoice = (),
        num_threads: int | None = None,
    ) -> list[list[int]]:
        """Return the ids of each text, encoded in `num_threads` threads, by default one per core.

        `encode_batch_to_numpy` is several times as fast, because it makes no lists, and with ``padded=True`` it returns
        a matrix. Raises as `encode` does, with the index of the text in the message.
        """
        batch = list_of(texts)
        encoded: list[list[int]] = []
        for group, ends in self._encode_texts(batch, allowed_special, disallowed_special, self._dtype, num_threads):
            ids, last = group.tolist(), ends.tolist()
            encoded += map(ids.__getitem__, map(slice, [0, *last], last))
        return encoded

    def encode_batch_to_numpy(
        self,
        texts: Iterable[str],
        *,
        padded: Padding | int | None = None,
        allowed_special: SpecialChoice = "all",
        disallowed_special: SpecialChoice = (),
        dtype: DTypeLike | None = None,
        num_threads: int | None = None,
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the ids of many texts in one array, encoded in several threads.

        Args:
            texts: the texts.
            padded: return a matrix with a row for each text instead. True makes the rows as long as the longest text,
                and an integer is their length. A `bpeflow.Padding` also sets the id, the side and truncation.
            allowed_special: as for `encode`.
            disallowed_special: as for `encode`.
            dtype: uint16 or uint32; by default `dtype` of the tokenizer.
            num_threads: by default one per core.

        Returns:
            The ids of all texts, concatenated, and offsets: the ids of text i are ``ids[offsets[i]:offsets[i + 1]]``.
            With `padded`: a matrix of shape (texts, length), and the number of ids in each row without padding.

        Raises:
            ConfigError: `dtype` is too small or neither of the two, `num_threads` is less than 1, a text has more ids
                than a row has room for, or `padded` is invalid.
            InputTypeError: as for `encode`, with the index of the text in the message; also the following.
            InvalidTextError: as for `encode`.
            SpecialTokenError: as for `encode`, or the tokenizer has no special token to pad with.

        >>> from bpeflow import Padding, Tokenizer
        >>> tokenizer = Tokenizer.train(iter(["low low low", "lower"]), vocab_size=258)
        >>> tokenizer.encode_batch_to_numpy(["low", "", "lower"])
        (array([108, 257, 108, 257, 101, 114], dtype=uint16), array([0, 2, 2, 6]))
        >>> tokenizer.encode_batch_to_numpy(["low", "lower"], padded=Padding(3, truncation="right"))
        (array([[108, 257, 256],
               [108, 257, 101]], dtype=uint16), array([2, 3]))
        """
        padding = bpeflow.Padding.of(padded, self.vocab)  # errors before any work
        ids_dtype = self._dtype if dtype is None else validate_dtype(dtype, self._tokens)
        batch = list_of(texts)
        groups = self._encode_texts(batch, allowed_special, disallowed_special, ids_dtype, num_threads)
        lengths: list[NDArray[np.int64]] = []

        def arrays() -> Iterator[NDArray[Any]]:
            for ids, ends in groups:
                lengths.append(np.diff(ends, prepend=0))
                yield ids

        ids = concatenate(arrays(), 0, ids_dtype)
        offsets = np.concatenate([[0], *lengths]).cumsum(dtype=np.int64)
        return (ids, offsets) if padding is None else padding.pad(ids, offsets)

    def _encode_texts(
        self,
        texts: list[str],
        allowed: SpecialChoice,
        disallowed: SpecialChoice,
        dtype: np.dtype[Any],
        threads: int | None,
    ) -> Iterator[EncodedTexts]:
        specials = self._control.allowed(allowed)
        refused = self._control.disallowed(allowed, disallowed)

        def encode(group: list[str]) -> EncodedTexts:
            for text in group if refused else ():
                check_disallowed(to_utf8(text), refused)
            return self._encoder.encode_batch(group, specials, dtype)

        encode_one = partial(self.encode, allowed_special=allowed, disallowed_special=disallowed)
        return encode_texts(encode, encode_one, texts, threads)

    def encode_ordinary_batch(self, texts: Iterable[str], *, num_threads: int | None = None) -> list[list[int]]:
        """Return the ids of each text, with special tokens as ordinary text. Raises as `encode_batch` does."""
        return self.encode_batch(texts, allowed_special=(), num_threads=num_threads)

    def encode_with_offsets(
        self,
        text: str,
        *,
        allowed_special: SpecialChoice = "all",
        disallowed_special: SpecialChoice = (),
        byte_offsets: bool = False,
    ) -> tuple[list[int], Offsets]:
        """Return the ids of a text, and for each the (start, end) of its characters.

        A token can begin or end inside a character. That character then belongs to both neighbouring tokens. With
        `byte_offsets` the offsets are exact positions in the UTF-8 bytes. A token of normalized text covers all the
        characters that it comes from, such as a letter and its combining accent. Raises as `encode` does.

        >>> from bpeflow import Tokenizer
        >>> vocab = {byte: bytes([byte]) for byte in range(256)}
        >>> Tokenizer(vocab, []).encode_with_offsets("aé")
        ([97, 195, 169], [(0, 1), (1, 2), (1, 2)])
        """
        data = to_utf8(text)
        specials = self._specials(data, allowed_special, disallowed_special)
        ids = self._encoder.encode(data, specials)
        lengths = token_lengths(data, ids, specials, self._encoder, self.vocab)
        return ids, token_offsets(data, lengths, specials, self._pretokenizer, byte_offsets)

    def encode_iterable(
        self,
        texts: Iterable[str],
        *,
        allowed_special: SpecialChoice = "all",
        disallowed_special: SpecialChoice = (),
    ) -> Iterator[int]:
        """Yield the ids of a text that arrives in pieces, such as the lines of an open file, in bounded memory.

        The ids equal the ids of the whole text, however it was cut. The stream reads about 8,000 characters ahead and
        holds less than 1 MB besides the current piece. It holds more only where the text cannot be cut: in a longer
        word, or, with a pattern that cannot be compiled, in a longer stretch between two special tokens.

        Invalid arguments raise at once, as for `encode`. Errors in the text raise when the stream reaches them.
        """
        if isinstance(texts, NO_BATCH) or not isinstance(texts, Iterable):
            hint = "; for a single text use encode" if isinstance(texts, str) else ""
            raise InputTypeError(f"pieces of a text must be an iterable of str, not {type(texts).__name__}{hint}")
        specials = self._control.allowed(allowed_special)
        disallowed = self._control.disallowed(allowed_special, disallowed_special)
        return encode_stream(
            texts,
            lambda data: self._stream_encoder.encode_to_array(data, specials, self._dtype),
            TextCutter(self._pretokenizer, specials),
            disallowed,
        )

    def count_tokens(
        self,
        text: str | Utf8 | NDArray[np.uint8],
        *,
        allowed_special: SpecialChoice = "all",
        disallowed_special: SpecialChoice = (),
    ) -> int:
        """Return the number of ids of a text: a `str`, or UTF-8 bytes, in the memory of a part of it.

        Raises as `encode` does.
        """
        data = as_utf8(text)
        specials = self._specials(data, allowed_special, disallowed_special)
        return count_ids(self._encoder, data, specials, self._pretokenizer, self._dtype)

    @takes_settings
    def encode_file(
        self,
        src: str | Path | Sequence[str | Path | Mapping[str, Any]] | Iterable[str | bytes | Mapping[str, Any]],
        dst: str | Path,
        *,
        progress: bool = False,
        observer: bpeflow.Observer | None = None,
        **options: Unpack[EncodeKeywords],
    ) -> bpeflow.EncodedCorpus:
        """Encode a corpus of any size to a token file.

        Args:
            src: the corpus: a file, a folder, a glob, or a list of these, or an iterable of documents.
            dst: the token file to write.
            progress: show progress on standard error, or in the notebook.
            observer: progress callbacks, instead.
            options: other settings of `bpeflow.config.encoding.EncodeSettings`, such as ``val_fraction=0.005``.

        Returns:
            The files that were written, and statistics of the corpus.

        Raises:
            ConfigError: a setting is unknown or invalid.
            CorpusError: an input is missing, unreadable, or not UTF-8.
            AlreadyExistsError: there is such a token file already.
            BpeflowError: other failures, such as a full disk.

        >>> from tempfile import TemporaryDirectory
        >>> from bpeflow import Tokenizer, load_tokens
        >>> tokenizer = Tokenizer.train(iter(["low low low", "lower"]), vocab_size=258)
        >>> with TemporaryDirectory() as folder:
        ...     corpus, out = Path(folder, "corpus.txt"), Path(folder, "train.bin")
        ...     _ = corpus.write_text("low<|endoftext|>lower", encoding="utf-8")
        ...     encoded = tokenizer.encode_file(corpus, out)
        ...     print(encoded.documents, load_tokens(out).tolist())
        2 [108, 257, 256, 108, 257, 101, 114]
        """
        return bpeflow.encode_file(self, src, dst, progress=progress, observer=observer, **options)

    @takes_settings
    def encode_documents(
        self,
        documents: Iterable[str | bytes | Mapping[str, Any]],
        dst: str | Path,
        *,
        progress: bool = False,
        observer: bpeflow.Observer | None = None,
        **options: Unpack[EncodeKeywords],
    ) -> bpeflow.EncodedCorpus:
        """Encode documents to a token file, with an end token after each.

        Args:
            documents: the documents: each a `str`, `bytes` of UTF-8, or a mapping with the text in `text_field`, such
                as the rows of a HuggingFace dataset.
            dst: the token file to write.
            progress: show progress on standard error, or in the notebook.
            observer: progress callbacks, instead.
            options: other settings of `bpeflow.config.encoding.EncodeSettings`, such as ``val_fraction=0.005``.

        Returns:
            The files that were written, and statistics of the documents.

        Raises:
            BpeflowError: as `encode_file`.

        >>> from tempfile import TemporaryDirectory
        >>> from bpeflow import Tokenizer, load_tokens
        >>> tokenizer = Tokenizer.train(iter(["low low low", "lower"]), vocab_size=258)
        >>> with TemporaryDirectory() as folder:
        ...     encoded = tokenizer.encode_documents(["low", "lower"], Path(folder, "train.bin"))
        ...     print(encoded.documents, load_tokens(Path(folder, "train.bin")).tolist())
        2 [108, 257, 256, 108, 257, 101, 114, 256]
        """
        return bpeflow.encode_documents(self, documents, dst, progress=progress, observer=observer, **options)

    def explain(
        self, text: str, *, allowed_special: SpecialChoice = "all", disallowed_special: SpecialChoice = ()
    ) -> bpeflow.Explanation:
        """Explain how a text is encoded: its pre-tokens and tokens, and the merges in the order in which they applied.

        Takes the arguments of `encode` and raises its errors. A notebook shows the result in colours.

        >>> from bpeflow import Tokenizer
        >>> tokenizer = Tokenizer.train(iter(["low low low", "lower"]), vocab_size=259)
        >>> [(step.left, step.right) for step in tokenizer.explain("low").pieces[0].steps]
        [(b'o', b'w'), (b'l', b'ow')]
        """
        return self._explainer.explain(text, allowed_special=allowed_special, disallowed_special=disallowed_special)

    @cached_property
    def _explainer(self) -> bpeflow.Explainer:
        return bpeflow.Explainer(self)

    def _specials(self, data: Utf8, allowed: SpecialChoice, disallowed: SpecialChoice) -> SpecialTokens:
        if disallowed:
            check_disallowed(data, self._control.disallowed(allowed, disallowed))
        return self._control.allowed(allowed)

    # ---- decoding ----

    def decode(self, ids: Ids, errors: str = "replace", *, skip_special_tokens: bool = False) -> str:
        """Return the text of ids.

        Args:
            ids: a sequence, an iterator or a one-dimensional array of integers.
            errors: how to handle bytes that are not UTF-8, as for `bytes.decode`.
            skip_special_tokens: leave special tokens out. A special token that shares its id with ordinary text, which
                is possible in HuggingFace's mode, is kept.

        Raises:
            UnknownTokenError: an id is not in the vocabulary. The message has the id and its index.
            InputTypeError: `ids` are not integers.
        """
        return self.decode_bytes(ids, skip_special_tokens=skip_special_tokens).decode("utf-8", errors)

    def decode_bytes(self, ids: Ids, *, skip_special_tokens: bool = False) -> bytes:
        """Return the exact bytes of ids: ``decode_bytes(encode(text)) == text.encode()``, without a normalizer.

        Raises as `decode` does.
        """
        valid = validate_ids(ids, self._tokens)
        if not skip_special_tokens:
            return self._encoder.decode(valid)
        try:
            return self._encoder.decode(valid[~self._skipped.take(valid, mode="clip")])
        except UnknownTokenError:
            self._encoder.decode(valid)  # raises with the index in `ids`
            raise

    @cached_property
    def _skipped(self) -> NDArray[np.bool_]:
        """Whether each id is skipped with `skip_special_tokens`; one entry more, False, is for unknown ids."""
        skipped, ordinary = np.zeros(self._tokens + 1, np.bool_), self.vocab.ordinary_tokens
        skipped[[i for i in self.vocab.special_tokens.values() if not ordinary[i]]] = True
        return skipped

    def decode_batch(
        self, batch: Iterable[Ids], errors: str = "replace", *, skip_special_tokens: bool = False
    ) -> list[str]:
        """Return the text of each sequence of ids. Raises as `decode` does."""
        return for_each(lambda ids: self.decode(ids, errors, skip_special_tokens=skip_special_tokens), batch)

    def stream_decoder(self, errors: str = "replace", *, skip_special_tokens: bool = False) -> StreamDecoder:
        """Return a decoder for ids that arrive in pieces. It holds incomplete characters back."""
        return StreamDecoder(partial(self.decode_bytes, skip_special_tokens=skip_special_tokens), errors)

    def decode_stream(
        self, ids: Iterable[int], errors: str = "replace", *, skip_special_tokens: bool = False
    ) -> Iterator[str]:
        """Yield the text of a stream of ids, each piece as soon as it is complete.

        Invalid arguments raise at once, and errors in the ids when the stream reaches them, with the index.
        """
        return self.stream_decoder(errors, skip_special_tokens=skip_special_tokens).decode(ids)


def new_encoder(spec: TokenizerSpec, name: EncoderName = "auto", cache_bytes: int = DEFAULT_CACHE_BYTES) -> Encoder:
    """Return the encoder of that name. ``auto`` is the native one if it is available, else the Python one.

    Raises:
        ConfigError: the name is unknown, or the cache size is invalid.
        NativeUnavailableError: ``native`` was requested but is not available.
        FormatError: the vocabulary and the merges do not fit each other.
    """
    if name not in ("auto", *ENCODERS):
        raise ConfigError(unknown_name("encoder", name, ("auto", *ENCODERS)))
    if not is_integer(cache_bytes) or not 0 <= cache_bytes < 1 << 63:
        raise ConfigError(f"cache_bytes is {cache_bytes!r}; it must be an integer number of bytes, 0 for no cache")
    if name != "python":
        try:
            return NativeEncoder(spec, cache_bytes)
        except NativeUnavailableError:
            if name == "native":
                raise
    from bpeflow.tokenizer.python_encoder import PythonEncoder  # where the native one is not built

    return PythonEncoder(spec, cache_bytes)
