"""`Explainer`: explains texts with a tokenizer, by merging each pre-token step by step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from bpeflow.look.explanation import Border, Explanation, Missed, Piece, Step, Token
from bpeflow.pretokenize.regex import load_pretokenizer
from bpeflow.tokenizer.offsets import token_offsets
from bpeflow.tokenizer.python_encoder import PretokenMerging, merge_table
from bpeflow.tokenizer.special_tokens import SpecialChoice, SpecialTokens
from bpeflow.tokenizer.tokenizer import Tokenizer
from bpeflow.tokenizer.validate import to_utf8
from bpeflow.vocab import Vocab


class Explainer:
    """Explains texts with a tokenizer. Thread-safe."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Prepare a tokenizer, which takes a fraction of a second if it has hundreds of thousands of merges."""
        self._tokenizer = tokenizer
        self._merges = MergeTable(tokenizer.vocab)
        self._pretokenizer = load_pretokenizer(tokenizer.pattern, tokenizer.unmatched, tokenizer.normalizer)
        whole = enumerate(tokenizer.vocab.ordinary_tokens) if tokenizer.to_spec().whole_tokens else ()
        self._whole = {token: token_id for token_id, token in whole if token}

    def explain(
        self, text: str, *, allowed_special: SpecialChoice = "all", disallowed_special: SpecialChoice = ()
    ) -> Explanation:
        """Explain a text. Arguments and errors are those of `Tokenizer.encode`."""
        data = to_utf8(text)
        specials = self._tokenizer._specials(data, allowed_special, disallowed_special)
        merged = list(self._merged(data, specials))
        sizes = [len(part) for piece in merged for part in piece.parts]
        byte_spans = iter(token_offsets(data, sizes, specials, self._pretokenizer, True))
        characters = iter(token_offsets(data, sizes, specials, self._pretokenizer, False))
        pieces = tuple(
            Piece(
                piece.kind,
                tuple(
                    Token(token_id, part, next(characters), next(byte_spans))
                    for token_id, part in zip(piece.ids, piece.parts, strict=True)
                ),
                piece.steps,
            )
            for piece in merged
        )
        return Explanation(text, pieces, tuple(self._borders(pieces, merged)))

    def _merged(self, data: bytes, specials: SpecialTokens) -> Iterator[_Merged]:
        """Yield the pre-tokens and special tokens of a text, merged."""
        for piece, special_id in specials.split(data):
            if special_id is None:
                yield from self._merged_ordinary(piece)
            else:
                yield _Merged("special token", [special_id], [piece])

    def _merged_ordinary(self, data: bytes) -> Iterator[_Merged]:
        for pretoken in self._pretokenizer.pretokens(self._pretokenizer.normalizer.utf8(data).decode()):
            encoded = pretoken.encode()
            whole = self._whole.get(encoded)
            yield self._merges.merge(encoded) if whole is None else _Merged("whole token", [whole], [encoded])

    def _borders(self, pieces: tuple[Piece, ...], merged: list[_Merged]) -> Iterator[Border]:
        for index, piece in enumerate(merged):
            if index:
                yield self._border_between(pieces[index - 1], pieces[index])
            yield from piece.borders

    def _border_between(self, left: Piece, right: Piece) -> Border:
        if "special token" in (left.kind, right.kind):
            return Border("special token")
        rank = self._merges.rank(left.tokens[-1].id, right.tokens[0].id)
        dropped = self._pretokenizer.unmatched == "drop" and left.span[1] < right.span[0]
        return Border("dropped text" if dropped else "pre-token", rank)


@dataclass(frozen=True)
class _Merged:
    """A pre-token or special token after merging: the ids and bytes of its tokens, the steps, the borders in it."""

    kind: Literal["pre-token", "whole token", "special token"]
    ids: list[int]
    parts: list[bytes]
    steps: tuple[Step, ...] = ()
    borders: tuple[Border, ...] = ()


class MergeTable:
    """The merges of a vocabulary by the ids of their parts."""

    def __init__(self, vocab: Vocab) -> None:
        """Prepare a vocabulary. Raises `FormatError` if a byte, or a part or the result of a merge, has no id."""
        self._vocab = vocab
        self._byte_ids = vocab.byte_ids
        self._merges = merge_table(vocab.merge_ids)
        self._counts = vocab.merge_counts or (None,) * len(vocab.merge_ids)

    def rank(self, left: int, right: int) -> int | None:
        """Return the rank of the merge of two tokens; None if there is none."""
        merge = self._merges.get((left, right))
        return None if merge is None else merge[0]

    def merge(self, pretoken: bytes) -> _Merged:
        """Merge a pre-token as `PretokenMerging` does, and record each step."""
        merging = PretokenMerging(pretoken, self._byte_ids, self._merges)
        steps: list[Step] = []
        missed: dict[int, list[Missed]] = {}

        def miss(position: int, step: Step) -> None:
            """Note down the merge of the token at `position` with the next one, which `step` makes impossible."""
            merge = merging.find(position)
            if merge is not None:
                left, right = self._vocab.merges[merge[0]]
                entry = Missed(merge[0], self._counts[merge[0]], left, right, step)
                missed.setdefault(merging.following[position], []).append(entry)

        for rank, result, position in merging.steps():
            left, right = self._vocab.merges[rank]
            steps.append(Step(rank, self._counts[rank], left, right, result, position))
            miss(merging.previous[position], steps[-1])
            miss(merging.following[position], steps[-1])
        starts = [position for position, token_id in enumerate(merging.ids) if token_id is not None]
        parts = [pretoken[start:end] for start, end in pairwise([*starts, len(pretoken)])]
        borders = tuple(Border("no merge", None, tuple(missed.get(start, ()))) for start in starts[1:])
        return _Merged("pre-token", [i for i in merging.ids if i is not None], parts, tuple(steps), borders)
