"""`BaseTokenizer`: a codec made from a vocabulary or files. `bpeflow.Tokenizer` adds training and token files to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bpeflow._util.text import UnmatchedPolicy
from bpeflow.formats import any_format as formats
from bpeflow.formats import gpt2
from bpeflow.formats.tokenizer_spec import TokenizerSpec, add_special_tokens
from bpeflow.formats.transformers import TransformersOptions
from bpeflow.tokenizer.codec import TextCodec
from bpeflow.tokenizer.encoder import DEFAULT_CACHE_BYTES
from bpeflow.tokenizer.validate import make_vocab
from bpeflow.vocab import Merge, Vocab

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from bpeflow._util.keywords import TransformersKeywords

_Self = TypeVar("_Self", bound="BaseTokenizer")


class BaseTokenizer(TextCodec):
    """The part of `bpeflow.Tokenizer` that works in memory. Immutable, thread-safe and picklable.

    >>> vocab = {byte: bytes([byte]) for byte in range(256)} | {256: b"he", 257: b"llo", 258: b"ll"}
    >>> tokenizer = BaseTokenizer(vocab, [(b"h", b"e"), (b"l", b"l"), (b"ll", b"o")], ["<|endoftext|>"])
    >>> tokenizer.encode("hello<|endoftext|>")
    [256, 257, 259]
    >>> tokenizer.decode([256, 257, 259])
    'hello<|endoftext|>'
    """

    def __init__(
        self,
        vocab: Mapping[int, bytes] | Vocab,
        merges: Iterable[Merge],
        special_tokens: Iterable[str] | None = None,
        pattern: str | Sequence[str] | None = None,
        *,
        unmatched: UnmatchedPolicy | None = None,
        normalizer: str | Iterable[str] | None = None,
        whole_tokens: bool = False,
        encoder: str = "auto",
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> None:
        """Make a tokenizer from a vocabulary and merges, as `bpeflow.train_bpe` returns them.

        Args:
            vocab: the bytes of each id.
            merges: pairs of bytes by rank.
            special_tokens: strings that are never split. Those missing from `vocab` are appended to it in their order.
                In a text, overlaps are resolved leftmost-longest.
            pattern: how text is split into pre-tokens: a name in `bpeflow.pretokenize.patterns.NAMED_PATTERNS`, a
                regular expression, or a list of them, each of which splits the pieces of the one before; by default the
                pattern that a `Vocab` was trained with, else ``"gpt2"``.
            unmatched: what to do with text that a regular expression does not match: ``"isolate"`` (each stretch
                between two matches is a pre-token), ``"drop"`` (it yields no ids), or ``"error"``; by default as the
                `Vocab` was trained, else ``"isolate"``.
            normalizer: what is applied to the text between special tokens before it is split: ``"nfc"``, ``"nfd"``,
                ``"nfkc"``, ``"nfkd"``, ``"lowercase"``, or several in order; by default as the `Vocab` was trained,
                else nothing. Decoding then returns the normalized text.
            whole_tokens: whether a pre-token that is a token is not merged, even if merging would yield other ids.
            encoder: ``"native"``, ``"python"``, or ``"auto"`` for the native one if it is available.
            cache_bytes: size of the cache of merged pre-tokens, in bytes. Threads share three quarters of it. When
                these are full, each thread adds a quarter of its own.

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

    @classmethod
    def from_spec(
        cls: type[_Self], spec: TokenizerSpec, *, encoder: str = "auto", cache_bytes: int = DEFAULT_CACHE_BYTES
    ) -> _Self:
        """Make a tokenizer from the content of a tokenizer file. Raises as the constructor does."""
        tokenizer = cls.__new__(cls)
        tokenizer._set_up(spec, encoder, cache_bytes)
        return tokenizer

    @classmethod
    def from_files(
        cls: type[_Self],
        vocab_filepath: str | Path,
        merges_filepath: str | Path,
        special_tokens: Iterable[str] | None = None,
        pattern: str | Sequence[str] | None = None,
        *,
        whole_tokens: bool = False,
        encoder: str = "auto",
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> _Self:
        """Read a vocabulary and its merges: GPT-2's ``vocab.json`` and ``merges.txt``.

        Entries of the vocabulary that are neither bytes nor merges are special tokens.

        Args:
            vocab_filepath: the path of ``vocab.json``.
            merges_filepath: the path of ``merges.txt``.
            special_tokens: further special tokens, as for the constructor.
            pattern: the pattern; by default that of ``bpeflow.json`` beside the vocabulary, or else GPT-2's. The
                normalizer is always that of ``bpeflow.json``.
            whole_tokens: as for the constructor.
            encoder: as for the constructor.
            cache_bytes: as for the constructor.

        Raises:
            FormatError: a file is damaged, or the files do not fit each other.
        """
        vocab_path, merges_path = Path(vocab_filepath), Path(merges_filepath)
        vocab = gpt2.load_files(vocab_path, merges_path).annotated(**gpt2.pattern_beside(vocab_path))
        spec = TokenizerSpec.of(add_special_tokens(vocab, special_tokens or ()), pattern, whole_tokens=whole_tokens)
        return cls.from_spec(spec, encoder=encoder, cache_bytes=cache_bytes)

    @classmethod
    def load(
        cls: type[_Self],
        path: str | Path,
        pattern: str | Sequence[str] | None = None,
        special_tokens: Mapping[str, int | None] | Iterable[str] | None = None,
        *,
        known: str | None = None,
        encoder: str = "auto",
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> _Self:
        """Read a tokenizer from a run folder, or from a folder or file in any of `bpeflow.formats`.

        `from_file` is another name of it. Files that lack the pattern and the special tokens, such as tiktoken's, are
        recognised by their content if they are published ones. For all others, give them here.

        Args:
            path: the folder or the file.
            pattern: the pattern, as for the constructor; by default that of the files.
            special_tokens: special tokens besides those of the files: a list, or a mapping to their ids. Without an id,
                they get those after the greatest.
            known: the name of a published tokenizer, a key of `bpeflow.formats.published.PUBLISHED`, whose pattern and
                special tokens the files are used with: ``p50k_edit`` and ``o200k_harmony`` have the same files as other
                tokenizers.
            encoder: as for the constructor.
            cache_bytes: as for the constructor.

        Raises:
            ConfigError: `known` is unknown, or the id of a special token is not free.
            FormatError: files are missing or damaged, or nothing says which pattern they are used with.
            PatternError: the pattern is invalid.
        """
        spec = formats.load(Path(path), pattern, special_tokens or (), known)
        return cls.from_spec(spec, encoder=encoder, cache_bytes=cache_bytes)

    from_file = load

    def save(
        self,
        path: str | Path,
        format: str | None = None,  # noqa: A002
        *,
        overwrite: bool = False,
        **options: Unpack[TransformersKeywords],
    ) -> list[Path]:
        """Write the tokenizer to files.

        Args:
            path: a folder; or the file itself, if its name ends as those of the format do.
            format: ``"gpt2"`` (vocab.json, merges.txt and bpeflow.json), ``"huggingface"`` (tokenizer.json, and in a
                folder the files that transformers reads beside it) or ``"tiktoken"``. By default the format of the
                file's ending (``.json``, ``.tiktoken``), and ``"gpt2"`` for a folder.
            overwrite: whether to replace a file or a tokenizer that is there.
            options: for a folder in the ``"huggingface"`` format: the special tokens `eos`, `bos` and `pad`, `add_bos`,
                `chat_template` and `max_length`, as for `bpeflow.config.OutputSettings`.

        Returns:
            The paths of the files.

        Raises:
            ConfigError: the format is unknown, or the options do not fit it or the tokenizer.
            FormatError: the format cannot represent the tokenizer.
            AlreadyExistsError: there is such a file already, or a folder holds another tokenizer. A folder may hold the
                same one in several formats.
        """
        name = format or formats.format_of_name(Path(path))
        return formats.save(self._spec, Path(path), name, overwrite, TransformersOptions(**options))

    def with_special_tokens(self: _Self, special_tokens: Iterable[str]) -> _Self:
        """Return a tokenizer with further special tokens, which get the ids after the greatest.

        A special token that is an ordinary token already, or a special one, keeps its id. Raises as the constructor
        does.

        >>> tokenizer = BaseTokenizer({byte: bytes([byte]) for byte in range(256)}, [], ["<|endoftext|>"])
        >>> tokenizer.with_special_tokens(["<|user|>", "<|assistant|>"]).special_tokens
        {'<|endoftext|>': 256, '<|user|>': 257, '<|assistant|>': 258}
        """
        encoder, cache_bytes = self._options
        spec = replace(self._spec, vocab=add_special_tokens(self.vocab, special_tokens))
        return type(self).from_spec(spec, encoder=encoder, cache_bytes=cache_bytes)

    def __reduce__(self) -> tuple[Callable[..., BaseTokenizer], tuple[type[BaseTokenizer], TokenizerSpec, str, int]]:
        return _unpickle, (type(self), self._spec, *self._options)

    def __repr__(self) -> str:
        specials = f", {len(self.special_tokens)} special" if self.special_tokens else ""
        normalizer = f", normalizer={', '.join(self.normalizer)!r}" if self.normalizer else ""
        pattern = f", pattern={self.pattern!r}{normalizer}"
        return f"Tokenizer({self.vocab_size:,} tokens{specials}{pattern}, encoder={self.encoder!r})"


def _unpickle(cls: type[_Self], spec: TokenizerSpec, encoder: str, cache_bytes: int) -> _Self:
    return cls.from_spec(spec, encoder=encoder, cache_bytes=cache_bytes)
