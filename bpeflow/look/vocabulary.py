"""`inspect_vocab`: figures about a vocabulary, and the tokens that no text ever yields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import repeat
from operator import contains
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from bpeflow._util.packed import PackedBytes
from bpeflow.look.render import is_incomplete, join_tokens
from bpeflow.tokenizer.tokenizer import Tokenizer, new_encoder
from bpeflow.vocab import Vocab

Figure = TypeVar("Figure", int, str)

#: Why no text yields a token.
Never = Literal["other tokens", "not UTF-8", "normalized", "same bytes"]

#: Scripts that letters are sorted into, by their names in Unicode: those in wide use today.
_SCRIPTS = (
    "Latin", "Cyrillic", "Greek", "Han", "Hiragana", "Katakana", "Hangul", "Bopomofo", "Arabic", "Hebrew", "Devanagari",
    "Bengali", "Gurmukhi", "Gujarati", "Oriya", "Tamil", "Telugu", "Kannada", "Malayalam", "Sinhala", "Thai", "Lao",
    "Tibetan", "Myanmar", "Khmer", "Javanese", "Mongolian", "Georgian", "Armenian", "Ethiopic", "Syriac", "Thaana",
    "Nko", "Tifinagh", "Cherokee", "Canadian_Aboriginal", "Yi", "Braille", "Coptic", "Runic",
)  # fmt: skip

#: What the characters of shapes stand for (see `shapes_of`). Without scripts, the first of them in a token is its kind.
_KINDS = {"0": "digits", "!": "punctuation and symbols", " ": "white space"}
_KINDS |= {chr(0x100 + number): name.replace("_", " ") for number, name in enumerate(("other scripts", *_SCRIPTS))}

#: In shapes, a byte that is not part of a whole character.
_BROKEN = "?"

#: Tokens of a list that are shown.
LISTED = 10

#: Text after a token of which a pattern may make another pre-token: superwords end with a space before digits only.
_FOLLOWING = ("", "0", "a", "!!")

#: Ends that complete the beginning of any character.
_CHARACTER_ENDS = (b"", b"\x80", b"\x80\x80", b"\xa0\x80", b"\x80\x80\x80", b"\xa0\x80\x80")


@dataclass(frozen=True, slots=True)
class VocabToken:
    """A token of a vocabulary.

    Attributes:
        id: its id.
        bytes: its bytes.
    """

    id: int
    bytes: bytes


@dataclass(frozen=True, slots=True)
class NeverToken(VocabToken):
    """A token that is proved to occur in the ids of no text.

    Attributes:
        reason: ``"other tokens"``: merging its own bytes yields other tokens; ``"not UTF-8"``: its bytes are part of no
            text; ``"normalized"``: the normalizer changes its text; ``"same bytes"``: a lower id has the same bytes.
    """

    reason: Never


@dataclass(frozen=True, slots=True)
class RankCount:
    """The training count of a merge.

    Attributes:
        rank: its rank.
        left: the bytes of the left token.
        right: the bytes of the right token.
        count: how often the pair occurred when it was merged; None if that is unknown.
    """

    rank: int
    left: bytes
    right: bytes
    count: int | None


@dataclass(frozen=True)
class VocabFigures:
    """Figures about a vocabulary. Special tokens are in none of them but `ids` and `special_tokens`.

    Attributes:
        ids: the number of ids, including unused ones.
        unused_ids: the number of ids without a token.
        merges: the number of merges.
        special_tokens: the id of each special token.
        lengths: the number of tokens of each length in bytes.
        words: the number of tokens of each number of words, which white space separates.
        scripts: the number of tokens in each script, most first; a token in several is ``"mixed"``, and those without
            letters are ``"digits"``, ``"punctuation and symbols"``, ``"white space"`` or ``"part of a character"``.
        incomplete: the tokens that are not valid UTF-8, because they begin or end inside a character.
        never: the tokens that are proved to occur in the ids of no text.
        unproved: the tokens that their own text does not yield, alone or before a digit, a letter or punctuation, and
            of which it is not known whether another text does.
        longest: the longest tokens.
        merge_counts: the training counts of merges at ranks 0, 9, 99 and so on, and of the last; empty if unknown.
    """

    ids: int
    unused_ids: int
    merges: int
    special_tokens: dict[str, int]
    lengths: dict[int, int]
    words: dict[int, int]
    scripts: dict[str, int]
    incomplete: tuple[VocabToken, ...]
    never: tuple[NeverToken, ...]
    unproved: tuple[VocabToken, ...]
    longest: tuple[VocabToken, ...]
    merge_counts: tuple[RankCount, ...]


def inspect_vocab(tokenizer: Tokenizer, longest: int = 10) -> VocabFigures:
    r"""Return figures about a tokenizer's vocabulary.

    >>> from bpeflow import Tokenizer
    >>> figures = inspect_vocab(Tokenizer.train(iter(["low low low", "lower"]), vocab_size=259))
    >>> figures.ids, figures.merges, figures.lengths
    (259, 2, {1: 256, 2: 1, 3: 1})
    >>> figures.merge_counts[0]
    RankCount(rank=0, left=b'o', right=b'w', count=4)
    >>> len(figures.never), figures.never[0]
    (13, NeverToken(id=192, bytes=b'\xc0', reason='not UTF-8'))

    Args:
        tokenizer: the tokenizer.
        longest: the number of longest tokens to return.
    """
    vocab = tokenizer.vocab
    tokens, shapes = vocab.own_tokens, shapes_of(vocab.own_tokens)
    lengths, never = tokens.lengths, tuple(never_tokens(tokenizer))
    unproved = lengths > 0
    unproved[[*reached_ids(tokenizer), *(token.id for token in never)]] = False
    return VocabFigures(
        ids=len(vocab),
        unused_ids=len(vocab) - int(np.count_nonzero(vocab.packed_tokens.lengths)),
        merges=vocab.merge_count,
        special_tokens=dict(vocab.special_tokens),
        lengths=dict(sorted(Counter(lengths[lengths > 0].tolist()).items())),
        words=dict(sorted(_tally(shapes, _count_words).items())),
        scripts=count_scripts(shapes),
        incomplete=_chosen(tokens, are_incomplete(shapes)),
        never=never,
        unproved=_chosen(tokens, unproved),
        longest=tuple(longest_tokens(vocab, longest)),
        merge_counts=tuple(_counts_at_ranks(tokenizer)),
    )


def _chosen(tokens: PackedBytes, chosen: NDArray[np.bool_]) -> tuple[VocabToken, ...]:
    return tuple(VocabToken(i, tokens[i]) for i in np.flatnonzero(chosen).tolist())


def longest_tokens(vocab: Vocab, count: int) -> list[VocabToken]:
    """Return the longest tokens of a vocabulary, without special tokens. Ties are in the order of ids."""
    tokens = vocab.own_tokens
    longest = np.argsort(-tokens.lengths, kind="stable")[:count].tolist()
    return [VocabToken(i, tokens[i]) for i in longest if tokens[i]]


def list_tokens(tokens: Sequence[VocabToken]) -> str:
    """Return the first of some tokens on one line."""
    listed = join_tokens(token.bytes for token in tokens[:LISTED]) or "none"
    return f"{listed} …" if len(tokens) > LISTED else listed


def reached_ids(tokenizer: Tokenizer) -> NDArray[np.int64]:
    """Return the ids of the tokens that their own text yields, alone or before one of `_FOLLOWING`."""
    spec = tokenizer.to_spec()
    if spec.unmatched == "error":  # where text is dropped, the ids have other bytes
        tokenizer = Tokenizer.from_spec(replace(spec, unmatched="drop"))
    ordinary = spec.vocab.ordinary_tokens
    tokens, rest = [*ordinary], np.flatnonzero((ordinary.lengths > 0) & ~are_incomplete(shapes_of(ordinary)))
    reached = []
    for following in _FOLLOWING:
        texts = [tokens[i].decode() + following for i in rest.tolist()]
        ids, offsets = tokenizer.encode_batch_to_numpy(texts, allowed_special=())
        is_reached = (np.append(ids, 0)[offsets[:-1]] == rest) & (np.diff(offsets) > 0)
        reached.append(rest[is_reached])
        rest = rest[~is_reached]
    return np.concatenate(reached)


def never_tokens(tokenizer: Tokenizer) -> Iterator[NeverToken]:
    """Yield the tokens that are proved to occur in the ids of no text.

    If merging a pre-token yields a token somewhere, then merging that token's own bytes yields it alone: no merge
    crossed its ends, so the merges inside it were applied in the order in which they apply to its bytes alone. So a
    token that merging its own bytes does not yield is never the result of merging. With `whole_tokens` it can still be
    a whole pre-token if it is UTF-8, and is not in the result.
    """
    spec = tokenizer.to_spec()
    normalizer = tokenizer._pretokenizer.normalizer
    ordinary, own = spec.vocab.ordinary_tokens, spec.vocab.own_tokens
    encoder = new_encoder(replace(spec, whole_tokens=False), cache_bytes=0)
    data = np.frombuffer(ordinary.data, np.uint8)
    ids, ends = encoder.encode_pretokens(data, ordinary.offsets, np.dtype(np.uint32))
    starts = np.append(0, ends[:-1])
    is_made = (ends - starts == 1) & (np.append(ids, 0)[starts] == np.arange(len(ordinary)))  # of its own bytes
    suspects = ~is_made | are_incomplete(shapes_of(ordinary)) | bool(normalizer)
    for token_id in np.flatnonzero(suspects).tolist():
        token = own[token_id] or ordinary[token_id]  # the id of a special token can have ordinary text, too
        if not token:
            continue
        incomplete = is_incomplete(token)
        reason: Never
        if not ordinary[token_id]:
            reason = "same bytes"
        elif incomplete and not is_part_of_utf8(token):
            reason = "not UTF-8"
        elif not incomplete and normalizer and normalizer.utf8(token) != token:
            reason = "normalized"
        elif (incomplete or not spec.whole_tokens) and not is_made[token_id]:
            reason = "other tokens"
        else:
            continue
        yield NeverToken(token_id, token, reason)


def is_part_of_utf8(part: bytes) -> bool:
    r"""Return whether bytes occur in some text in UTF-8, perhaps with further bytes before and after.

    >>> [is_part_of_utf8(part) for part in (b"\x9f\x98 a\xf0", b"\xc0", b"\x80\x80\x80\x80")]
    [True, False, False]
    """
    rest = part.lstrip(bytes(range(0x80, 0xC0)))  # bytes that continue a character
    return len(part) - len(rest) <= 3 and not all(is_incomplete(rest + end) for end in _CHARACTER_ENDS)


def shapes_of(tokens: PackedBytes) -> list[str]:
    r"""Return the shape of each token: for each of its characters one that stands for what it is.

    >>> shapes_of(PackedBytes.of([b" 2.50", b"", b"\n\xe2\x80"]))
    [' 0!00', '', ' ??']
    """
    data = np.frombuffer(tokens.data.replace(b"\n", b"\r"), np.uint8)  # one white space for the other
    lines = np.insert(data, tokens.offsets[1:], ord("\n")).tobytes()
    return lines.decode(errors="surrogateescape").translate(_CODES).split("\n")[:-1]


def are_incomplete(shapes: Sequence[str]) -> NDArray[np.bool_]:
    """Return whether the bytes of each token are not valid UTF-8."""
    return np.fromiter(map(contains, shapes, repeat(_BROKEN)), np.bool_, len(shapes))


def count_scripts(shapes: Iterable[str]) -> dict[str, int]:
    r"""Return the number of tokens in each script, or of what they consist of instead, as `VocabFigures` has them.

    >>> count_scripts(shapes_of(PackedBytes.of([b" the", "2я".encode(), b"\xe2\x80", b" 2024", b" of"])))
    {'Latin': 2, 'Cyrillic': 1, 'part of a character': 1, 'digits': 1}
    """
    return dict(_tally(shapes, _script).most_common())


def _tally(shapes: Iterable[str], figure: Callable[[str], Figure]) -> Counter[Figure]:
    """Return the number of tokens with each value of a figure, which is computed once for each shape."""
    tally: Counter[Figure] = Counter()
    for shape, number in Counter(filter(None, shapes)).items():
        tally[figure(shape)] += number
    return tally


def _count_words(shape: str) -> int:
    return len(shape.replace(_BROKEN, "").split())


def _script(shape: str) -> str:
    """Return what a token is, given its shape."""
    scripts = [code for code in {*shape} if code >= "\u0100"]
    if len(scripts) > 1:
        return "mixed"
    return next((_KINDS[code] for code in (*scripts, *_KINDS) if code in shape), "part of a character")


class _Codes(dict[int, str]):
    """The character of shapes for each character, which is chosen when it is first needed."""

    def __missing__(self, point: int) -> str:
        self[point] = code = _code(chr(point))
        return code


_CODES = _Codes({ord("\n"): "\n"})


def _code(character: str) -> str:
    if "\udc80" <= character <= "\udcff":
        return _BROKEN
    match = _scripts().match(character)
    if match is None and character.isalpha():
        return chr(0x100)
    if match is not None and match.lastindex:  # not a letter of several scripts
        return chr(0x100 + match.lastindex)
    return " " if character.isspace() else "0" if character.isdecimal() else "!"


@cache
def _scripts() -> Any:
    import regex

    scripts = [rf"(\p{{Script={name}}})" for name in _SCRIPTS]
    return regex.compile("|".join([*scripts, r"\p{Script=Common}|\p{Script=Inherited}"]))


def _counts_at_ranks(tokenizer: Tokenizer) -> Iterator[RankCount]:
    vocab = tokenizer.vocab
    if not vocab.merge_counts:
        return
    powers = 10 ** np.arange(len(str(vocab.merge_count)))
    sides = vocab.packed_sides()
    for rank in sorted({*(powers - 1).tolist(), vocab.merge_count - 1}):
        yield RankCount(rank, sides[2 * rank], sides[2 * rank + 1], vocab.merge_counts[rank])
