"""`TokenizerSpec`: the content of a tokenizer, independent of file formats; its hash, and adding special tokens."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

import numpy as np

from bpeflow._util import native
from bpeflow._util.delimiters import special_bytes
from bpeflow._util.packed import PackedBytes
from bpeflow._util.text import NormalizerName, Pattern, UnmatchedPolicy, short_repr, steps_of
from bpeflow.errors import ConfigError, InputTypeError
from bpeflow.pretokenize.normalizer import load_normalizer
from bpeflow.pretokenize.patterns import NAMED_REGEXES
from bpeflow.pretokenize.regex import Pretokenizer, load_pretokenizer, simplest_pattern
from bpeflow.vocab import MOST_GAPS, Vocab

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TokenizerSpec:
    """Everything that determines the ids of a text. All formats load and save one.

    Attributes:
        vocab: the tokens, special tokens and merges. Its `pattern`, `unmatched` and `normalizer` are
            those of the spec.
        pattern: how text is split into pre-tokens: the name of a pattern, a regular expression, or several of them.
        whole_tokens: whether a pre-token that equals a token becomes that token, even if merging would yield other
            tokens. HuggingFace calls this `ignore_merges`, and tiktoken always does it.
        unmatched: what to do with text that a regular expression does not match. The named patterns match all text.
        normalizer: the names of the normalizers that are applied, in order, to the text between special tokens before
            it is split.
    """

    vocab: Vocab
    pattern: Pattern = "gpt2"
    whole_tokens: bool = False
    unmatched: UnmatchedPolicy = "isolate"
    normalizer: tuple[NormalizerName, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "pattern", simplest_pattern(self.pattern))  # the dataclass is frozen
        vocab = self.vocab
        known = (vocab.pattern, vocab.unmatched, vocab.normalizer)
        if known != (self.pattern, self.unmatched, self.normalizer):
            vocab = vocab.annotated(pattern=self.pattern, unmatched=self.unmatched, normalizer=self.normalizer)
            object.__setattr__(self, "vocab", vocab)

    @cached_property
    def pretokenizer(self) -> Pretokenizer:
        """Splits text as the pattern says. It is pickled with the spec, and so are its tables.

        Raises `PatternError` or `ConfigError` if one of the three is invalid.
        """
        return load_pretokenizer(self.pattern, self.unmatched, self.normalizer)

    @classmethod
    def of(
        cls,
        vocab: Vocab,
        pattern: str | Sequence[str] | None = None,
        unmatched: UnmatchedPolicy | None = None,
        whole_tokens: bool = False,
        normalizer: str | Iterable[str] | None = None,
    ) -> TokenizerSpec:
        """Return a spec with the pattern and normalizer that a vocabulary was trained with, unless others are given.

        A vocabulary without a pattern, such as one made of a plain `dict`, gets GPT-2's. Logs a warning if a given
        pattern replaces another one.
        """
        pattern = vocab.pattern or "gpt2" if pattern is None else simplest_pattern(pattern)
        if vocab.pattern not in (None, pattern):
            warn_of_other_pattern("the vocabulary", vocab.pattern, pattern)
        if unmatched is None:
            unmatched = vocab.unmatched if pattern == vocab.pattern else None
        if not isinstance(whole_tokens, bool):
            raise InputTypeError(f"whole_tokens is {short_repr(whole_tokens)}; it must be True or False")
        names = load_normalizer(vocab.normalizer if normalizer is None else normalizer).names
        return cls(vocab, pattern, whole_tokens, unmatched or "isolate", names)

    def native(self, first_level: int) -> native.Vocabulary:
        """Return the argument of native functions that encode. Its first level is this number of merges."""
        vocab = self.vocab
        tokens, ordinary = vocab.decoded_tokens, vocab.ordinary_tokens
        byte_ids = np.array(vocab.byte_ids, np.uint32)
        merges = np.ascontiguousarray(vocab.merge_ids, np.uint32)
        argument = native.Vocabulary(
            tokens.data,
            tokens.offsets.ctypes.data,
            ordinary.data,
            ordinary.offsets.ctypes.data,
            len(vocab),
            byte_ids.ctypes.data,
            merges.ctypes.data,
            len(merges),
            first_level,
            self.whole_tokens,
        )
        argument.kept = (tokens, ordinary, byte_ids, merges)  # it has their addresses alone
        return argument


def warn_of_other_pattern(source: object, own: Pattern, pattern: Pattern) -> None:
    """Log a warning if a pattern is another one than the source's own. Raises `PatternError`."""
    if load_pretokenizer(pattern).regex != load_pretokenizer(own).regex:
        log.warning(
            "%s has the pattern %s, and text is split by %s instead, as asked, so its ids are others than those of "
            "the tokenizer: leave out pattern to split by its own",
            *(source, own, pattern),
        )


def tokenizer_hash(tokenizer: TokenizerSpec) -> str:
    """Return a hash of everything that determines encoding and decoding, as 64 hexadecimal digits.

    It is the SHA-256 of the bytes of each id, the special tokens with their ids, the merges by rank, the pattern's
    regular expressions (not their names), `whole_tokens`, `unmatched` unless that is ``"drop"`` or the pattern matches
    all text, and the normalizer if there is one. Each list is preceded by its length and the lengths of its entries, so
    different tokenizers never hash the same bytes. The hash is the same on every machine and in every version of
    bpeflow.
    """
    vocab = tokenizer.vocab
    regex = tokenizer.pretokenizer.regex
    pattern = [*map(str.encode, steps_of(regex)), str(bool(tokenizer.whole_tokens)).encode()]
    if regex not in NAMED_REGEXES and tokenizer.unmatched != "drop":
        pattern.append(tokenizer.unmatched.encode())
    if tokenizer.normalizer:
        pattern.append(f"normalizer: {', '.join(tokenizer.normalizer)}".encode())
    digest = sha256(b"bpeflow tokenizer 1\n")
    specials = sorted(vocab.special_tokens.items(), key=lambda item: (item[1], item[0]))
    sides = vocab.packed_sides()
    for entries in (
        vocab.packed_tokens,
        PackedBytes.of([text.encode() for text, _ in specials]),
        PackedBytes.of([str(token_id).encode() for _, token_id in specials]),
        sides.taken(np.arange(0, len(sides), 2)),
        sides.taken(np.arange(1, len(sides), 2)),
        PackedBytes.of(pattern),
    ):
        digest.update(np.concatenate([[len(entries)], entries.lengths]).astype("<u8").tobytes())
        digest.update(entries.data)
    return digest.hexdigest()


def add_special_tokens(vocab: Vocab, special_tokens: str | Mapping[str, int | None] | Iterable[str]) -> Vocab:
    """Return a vocabulary with special tokens added.

    Args:
        vocab: the vocabulary. Its special tokens keep their ids.
        special_tokens: a special token, or several, with or without ids. One without an id gets the lowest id that its
            bytes have already, or else the id after the greatest, in the order given.

    Raises:
        InputTypeError: a special token is not a `str`, or `special_tokens` is neither a mapping nor a list.
        ConfigError: a special token is empty, has a lone surrogate, or has another id already; an id is far too large,
            or is that of another token.
    """
    if isinstance(special_tokens, str):
        special_tokens = (special_tokens,)
    if isinstance(special_tokens, bytes) or not isinstance(special_tokens, Iterable):
        raise InputTypeError(f"special_tokens is {special_tokens!r}; it must be a list of strings, or map them to ids")
    encoded = {special: special_bytes(special) for special in special_tokens}
    if not encoded:
        return vocab
    given = special_tokens if isinstance(special_tokens, Mapping) else {}
    ids, tokens = dict(vocab.special_tokens), [*vocab.tokens]
    all_given = all(given.get(special) is not None for special in encoded)
    known = {} if all_given else dict(zip(reversed(tokens), reversed(range(len(tokens))), strict=True))
    for special, token in sorted(encoded.items(), key=lambda item: given.get(item[0]) is None):  # first those with ids
        token_id = given.get(special)
        if token_id is None:
            token_id = ids.get(special, known.get(token, len(tokens)))
        _place(special, token, token_id, tokens, ids)
    return vocab if ids == vocab.special_tokens else vocab.replaced(tokens=tokens, special_tokens=ids)


def _place(special: str, token: bytes, token_id: int, tokens: list[bytes], ids: dict[str, int]) -> None:
    """Put a special token at its id, which must be free or belong to the same token."""
    where = f"special token {short_repr(special)}"
    if type(token_id) is not int or not 0 <= token_id < len(tokens) + MOST_GAPS:
        raise ConfigError(f"{where}: need an id from 0 to {len(tokens) + MOST_GAPS - 1}, found {short_repr(token_id)}")
    if ids.get(special, token_id) != token_id:
        raise ConfigError(f"{where} has id {ids[special]}, not {token_id}")
    tokens += [b""] * (token_id + 1 - len(tokens))
    if tokens[token_id] not in (b"", token):
        raise ConfigError(f"{where}: id {token_id} belongs to {short_repr(tokens[token_id])}")
    tokens[token_id], ids[special] = token, token_id
