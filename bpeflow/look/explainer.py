"""`Explainer`: explains the tokens of a text, by merging each pre-token step by step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from bpeflow.look.explanation import Border, Explanation, Kind, Missed, Piece, Step, Token
from bpeflow.tokenizer.offsets import token_offsets
from bpeflow.tokenizer.python_encoder import PretokenMerging, merge_table
from bpeflow.tokenizer.special_tokens import SpecialChoice, SpecialTokens
from bpeflow.tokenizer.tokenizer import Tokenizer
from bpeflow.tokenizer.validate import to_utf8


class _Merged(NamedTuple):
    """A pre-token or special token after merging: the ids and bytes of its tokens, the steps, the borders in it."""

    kind: Kind
    ids: list[int]
    parts: list[bytes]
    steps: tuple[Step, ...] = ()
    borders: tuple[Border, ...] = ()


class Explainer:
    """Explains texts with a tokenizer. Thread-safe."""

    def __init__(self, tokenizer: Tokenizer, second_stage: int | None = None) -> None:
        """Prepare a tokenizer. With hundreds of thousands of merges, this takes a fraction of a second.

        Args:
            tokenizer: the tokenizer.
            second_stage: the rank of the first merge of the second stage, with superwords; None if it is unknown.
        """
        vocab = tokenizer.vocab
        self._second_stage = second_stage
        self._tokenizer, self._vocab = tokenizer, vocab
        self._merges = merge_table(vocab.merge_ids)
        self._counts = vocab.merge_counts or (None,) * vocab.merge_count
        self._pretokenizer = tokenizer._pretokenizer
        self._whole = vocab.ordinary_ids if tokenizer.to_spec().whole_tokens else {}

    def explain(
        self, text: str, *, allowed_special: SpecialChoice = "all", disallowed_special: SpecialChoice = ()
    ) -> Explanation:
        """Explain a text. Takes the arguments of `Tokenizer.encode` and raises its errors."""
        data = to_utf8(text)
        specials = self._tokenizer._specials(data, allowed_special, disallowed_special)
        merged = list(self._merged(data, specials))
        sizes = [len(part) for piece in merged for part in piece.parts]
        byte_spans = iter(token_offsets(data, sizes, specials, self._pretokenizer, True))
        characters = iter(token_offsets(data, sizes, specials, self._pretokenizer, False))
        pieces: list[Piece] = []
        borders: list[Border] = []
        for kind, ids, parts, steps, inner in merged:
            tokens = (Token(i, part, next(characters), next(byte_spans)) for i, part in zip(ids, parts, strict=True))
            pieces.append(Piece(kind, tuple(tokens), steps))
            borders += [self._border_between(*pieces[-2:])] if len(pieces) > 1 else []
            borders += inner
        return Explanation(text, tuple(pieces), tuple(borders))

    def _merged(self, data: bytes, specials: SpecialTokens) -> Iterator[_Merged]:
        """Yield the pre-tokens and special tokens of a text, merged."""
        for piece, special_id in specials.split(data):
            if special_id is not None:
                yield _Merged("special token", [special_id], [piece])
                continue
            text = self._pretokenizer.normalizer.utf8(piece).decode()
            for pretoken in map(str.encode, self._pretokenizer.pretokens(text)):
                whole = self._whole.get(pretoken)
                yield self._merge(pretoken) if whole is None else _Merged("whole token", [whole], [pretoken])

    def _border_between(self, left: Piece, right: Piece) -> Border:
        if "special token" in (left.kind, right.kind):
            return Border("special token")
        rank, _ = self._merges.get((left.tokens[-1].id, right.tokens[0].id), (None, None))
        dropped = self._pretokenizer.unmatched == "drop" and left.span[1] < right.span[0]
        return Border("dropped text" if dropped else "pre-token", rank)

    def _merge(self, pretoken: bytes) -> _Merged:
        """Merge a pre-token as `PretokenMerging` does, and record each step."""
        merging = PretokenMerging(pretoken, self._vocab.byte_ids, self._merges)
        steps: list[Step] = []
        missed: defaultdict[int, list[Missed]] = defaultdict(list)

        def step(rank: int, result: int, position: int) -> Step:
            stage = None if self._second_stage is None else 1 + (rank >= self._second_stage)
            return Step(rank, self._counts[rank], *self._vocab.merges[rank], result, position, stage)

        for merge in merging.steps():
            applied = step(*merge)
            steps.append(applied)
            for position in (merging.previous[applied.start], merging.following[applied.start]):
                if taken := merging.find(position):  # a merge with the next token, impossible from now on
                    missed[merging.following[position]].append(Missed(step(*taken, position), applied))
        starts = [position for position, token_id in enumerate(merging.ids) if token_id is not None]
        parts = [pretoken[start:end] for start, end in pairwise([*starts, len(pretoken)])]
        borders = tuple(Border("no merge", None, tuple(missed[start])) for start in starts[1:])
        return _Merged("pre-token", [i for i in merging.ids if i is not None], parts, tuple(steps), borders)
