"""`EvaluationReport`: the metrics of tokenizers on corpora.

Stanford CS336 asks for them in its tokenizer experiments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.text import Text

from bpeflow import __version__
from bpeflow._util.text import format_size, one_line
from bpeflow.formats.tokenizer_spec import tokenizer_hash
from bpeflow.look.render import Printable, print_table
from bpeflow.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class CorpusText:
    """The content of a corpus without separators and other special tokens.

    Attributes:
        bytes: size of the documents.
        words: number of words, as Unicode white space separates them.
        documents: number of documents.
        skipped_documents: number of documents that were left out; not part of `documents`.
    """

    bytes: int = 0
    words: int = 0
    documents: int = 0
    skipped_documents: int = 0


@dataclass(frozen=True)
class Evaluation(Printable):
    """The results of a tokenizer on a corpus.

    Attributes:
        tokenizer: name of the tokenizer.
        corpus: name of the corpus; None for all corpora together.
        text: the text that was encoded.
        tokens: number of ids of the text.
        single_byte_tokens: number of ids of single bytes: no merge applied to them.
        used_tokens: number of entries of the vocabulary that occur.
        vocab_size: number of entries of the vocabulary.
        seconds: time for encoding on one thread, without reading; of a large corpus an estimate from its beginning.
        ratio: bytes per token, relative to the baseline's. 1.14 means 1.14 times the bytes per token, so 1 / 1.14 of
            the tokens for the same text. None without a baseline, or if one of the two has no tokens.

    >>> import bpeflow
    >>> tokenizer = bpeflow.Tokenizer.train(iter(["low low low", "lower"]), vocab_size=259)
    >>> [evaluation] = bpeflow.evaluate(tokenizer, iter(["low low", "low"]))
    >>> evaluation.tokens, evaluation.bytes_per_token, evaluation.tokens_per_word
    (4, 2.5, 1.3333333333333333)
    """

    tokenizer: str
    corpus: str | None
    text: CorpusText
    tokens: int
    single_byte_tokens: int
    used_tokens: int
    vocab_size: int
    seconds: float
    ratio: float | None = None

    @property
    def bytes_per_token(self) -> float | None:
        """Compression: more is better. None if there are no tokens."""
        return _quotient(self.text.bytes, self.tokens)

    @property
    def tokens_per_word(self) -> float | None:
        """Fertility: less is better. None if there are no words."""
        return _quotient(self.tokens, self.text.words)

    @property
    def single_byte_share(self) -> float | None:
        """Share of the tokens that are single bytes. None if there are no tokens."""
        return _quotient(self.single_byte_tokens, self.tokens)

    @property
    def used_share(self) -> float:
        """Share of the vocabulary that occurs."""
        return self.used_tokens / self.vocab_size

    @property
    def bytes_per_second(self) -> float | None:
        """Speed on one thread. None without text."""
        return _quotient(self.text.bytes, self.seconds) or None

    def seconds_for(self, size: int) -> float | None:
        """Estimate the seconds that encoding `size` bytes takes on one thread. None without text."""
        return _quotient(size, self.bytes_per_second)

    def print_to(self, console: Console) -> None:
        """Print the figures."""
        EvaluationReport({}, None, [self]).print_to(console)

    def relative_to(self, baseline: Evaluation) -> Evaluation:
        """Return a copy with the ratio to the baseline."""
        if self.bytes_per_token is None:
            return self
        return replace(self, ratio=_quotient(self.bytes_per_token, baseline.bytes_per_token))

    def to_dict(self, for_size: int | None = None) -> dict[str, Any]:
        """Return all metrics for JSON, with the estimated seconds for a size if it is given."""
        derived = ("bytes_per_token", "tokens_per_word", "single_byte_share", "used_share", "bytes_per_second")
        estimated = {} if for_size is None else {"seconds_for_size": self.seconds_for(for_size)}
        return {**asdict(self), **{name: getattr(self, name) for name in derived}, **estimated}


@dataclass(frozen=True)
class EvaluationReport(Printable):
    """The results of `bpeflow.evaluate`: ``report[0]`` is the first evaluation, and a loop goes over all.

    Attributes:
        tokenizers: the tokenizers by name.
        baseline: name of the tokenizer to which all are compared; None if there is only one.
        evaluations: the results, corpus by corpus, with the tokenizers of each in their order. If there are several
            corpora, those for all of them together follow.

    >>> import bpeflow
    >>> plain = bpeflow.Tokenizer({byte: bytes([byte]) for byte in range(256)}, [])
    >>> report = bpeflow.evaluate({"plain": plain}, iter(["low lower"]))
    >>> [(row.tokenizer, row.tokens) for row in report], len(report), report[0].used_tokens, report.baseline
    ([('plain', 9)], 1, 6, None)
    """

    tokenizers: Mapping[str, Tokenizer]
    baseline: str | None
    evaluations: Sequence[Evaluation]

    def __len__(self) -> int:
        return len(self.evaluations)

    def __getitem__(self, index: int) -> Evaluation:
        return self.evaluations[index]

    def __iter__(self) -> Iterator[Evaluation]:
        return iter(self.evaluations)

    def __repr__(self) -> str:
        corpora = [corpus for corpus in dict.fromkeys(row.corpus for row in self) if corpus is not None]
        return f"EvaluationReport(tokenizers={[*self.tokenizers]}, corpora={corpora})"

    def print_to(self, console: Console, for_size: int | None = None) -> None:
        """Print the figures, and what they mean."""
        several = len({row.tokenizer for row in self}) > 1
        lines = []
        for row in self:
            names = {"corpus": "all together" if row.corpus is None else one_line(row.corpus)}
            if several:
                names["tokenizer"] = one_line(row.tokenizer)
            lines.append(names | self._cells(row, for_size))
        headings = list(lines[0])
        sides = "".join("l" if heading in ("corpus", "tokenizer") else "r" for heading in headings)
        print_table(console, headings, [list(line.values()) for line in lines], sides)
        if self.baseline is not None:
            example = f"1.14 times the bytes per token of {one_line(self.baseline)}"
            console.print(Text(f"ratio: × 1.14 means {example}; more is better", "dim"))

    def _cells(self, row: Evaluation, for_size: int | None) -> dict[str, str]:
        """Return the figures of an evaluation by their headings."""
        cells = {
            "text": format_size(row.text.bytes),
            "tokens": f"{row.tokens:,}",
            "bytes/token": _shown(row.bytes_per_token, "{:.3f}".format),
        }
        if self.baseline is not None:
            cells["ratio"] = _shown(row.ratio, "× {:.2f}".format)
        cells |= {
            "tokens/word": _shown(row.tokens_per_word, "{:.3f}".format),
            "single bytes": _shown(row.single_byte_share, "{:.2%}".format),
            "used": f"{row.used_share:.1%}",
            "one thread": _shown(row.bytes_per_second, lambda rate: f"{format_size(rate)}/s"),
        }
        if for_size is not None:
            hours = _shown(row.seconds_for(for_size), lambda seconds: str(timedelta(seconds=round(seconds))))
            cells[f"{format_size(for_size)} take"] = hours
        return cells

    def to_dict(self, for_size: int | None = None) -> dict[str, Any]:
        """Return everything for JSON, with the estimated seconds for a size if it is given."""
        return {
            "bpeflow": __version__,
            "baseline": self.baseline,
            "for_size": for_size,
            "tokenizers": [
                {
                    "name": name,
                    "sha256": tokenizer_hash(tokenizer.to_spec()),
                    "vocab_size": tokenizer.vocab_size,
                    "pattern": tokenizer.pattern,
                    "normalizer": tokenizer.normalizer,
                    "encoder": tokenizer.encoder,
                }
                for name, tokenizer in self.tokenizers.items()
            ],
            "evaluations": [evaluation.to_dict(for_size) for evaluation in self.evaluations],
        }


def _shown(figure: float | None, form: Callable[[float], str]) -> str:
    return "–" if figure is None else form(figure)


def _quotient(numerator: float, denominator: float | None) -> float | None:
    return numerator / denominator if denominator else None
