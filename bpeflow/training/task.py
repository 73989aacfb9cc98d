"""`learning_task`: pre-token counts and settings in the terms of a backend, in which tokens have numbers.

Ties between pairs are broken by these numbers, or by bytes. Numbers do not depend on the ids in a vocabulary, also if
it is extended: with ``smallest_ids`` byte b has number b, and with ``huggingface`` special tokens and then bytes have
the first numbers. Tokens of merges follow in the order of ranks, old ones before new ones. (Tokens of the vocabulary to
extend that no merge makes are numbered before them.) Therefore a tokenizer that is extended on the counts that it was
trained on becomes what it would be if it had been trained to the larger size at once.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace

from bpeflow._util.byte_level import mergeable_bytes
from bpeflow.backends.base import MergeTask
from bpeflow.config import MergeSettings
from bpeflow.counting.counts import PretokenCounts
from bpeflow.errors import ConfigError
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.vocab import Merge, Vocab


def learning_task(
    counts: PretokenCounts,
    settings: MergeSettings,
    initial_merges: Iterable[Merge] = (),
    base: TokenizerSpec | None = None,
) -> MergeTask:
    """Return the task of learning merges with settings that have a `vocab_size`.

    A task that extends a tokenizer begins with its merges, by rank. Replaying them tokenizes the corpus as the
    tokenizer does. For each of them comes after all merges that make its parts (a list without this order is refused):
    once a merge has been made everywhere, no merge of a lower rank becomes applicable, so encoding uses the merges in
    the same order. And pre-tokens that are whole tokens (`TokenizerSpec.whole_tokens`) have no pairs, so they are left
    out.

    Args:
        counts: the counts.
        settings: the settings.
        initial_merges: the merges to begin with; with `base` those of `base` first.
        base: the tokenizer to extend.

    Raises:
        ConfigError: the initial merges or `base` do not fit.
    """
    vocab_size, special_tokens = settings.vocab_size or 0, settings.special_tokens
    huggingface = settings.tie_break == "huggingface"
    vocab = None
    if base is not None:
        vocab = base.vocab.extend((), special_tokens, reuse_tokens=huggingface)
        _check_size(vocab_size, base.vocab, vocab)
        special_tokens = tuple(sorted(vocab.special_tokens, key=vocab.special_tokens.__getitem__))
        if base.whole_tokens:
            counts = _without(counts, base.vocab)
    if huggingface:
        start = Vocab.build((), special_tokens, special_tokens_first=True, reuse_tokens=True)
        specials = {token_id: mergeable_bytes(token) for token, token_id in start.special_tokens.items()}
        tokens = tuple(specials.get(token_id, token) for token_id, token in enumerate(start.tokens))
        max_tokens = vocab_size
    else:  # byte b has number b and merge k has 256 + k, whatever ids the vocabulary gives them later
        tokens = tuple(bytes([byte]) for byte in range(256))
        max_tokens = vocab_size - len(special_tokens)
    byte_ids = tuple(tokens.index(bytes([byte])) for byte in range(256))
    if vocab is not None:
        tokens = _with_tokens_of(vocab, tokens)
        max_tokens = len(tokens) + vocab_size - len(vocab)
    task = MergeTask(
        counts=counts,
        tokens=tokens,
        byte_ids=byte_ids,
        max_tokens=max_tokens,
        order="greatest_bytes" if settings.tie_break == "greatest_bytes" else "smallest_ids",
        reuse_tokens=huggingface or base is not None,
        min_frequency=settings.min_frequency,
        max_token_length=settings.max_token_length,
        max_search=settings.max_search,
        threads=settings.threads,
    )
    merges = tuple(initial_merges)
    return replace(task, initial_merges=_number_merges(merges, task, vocab.merges if vocab else ()))


def _check_size(vocab_size: int, base: Vocab, with_special_tokens: Vocab) -> None:
    new = len(with_special_tokens) - len(base)
    if vocab_size < len(with_special_tokens):
        raise ConfigError(
            f"vocab_size {vocab_size:,} is too small: the tokenizer to extend has {len(base):,} entries"
            + (f", and {new:,} new special token(s) make {len(with_special_tokens):,}" if new else "")
        )


def _without(counts: PretokenCounts, vocab: Vocab) -> PretokenCounts:
    """Return the counts without the pre-tokens that are tokens."""
    whole = {token for token in vocab.ordinary_tokens if token}
    return PretokenCounts.from_items((word, count) for word, count in counts.items() if word not in whole)


def _with_tokens_of(vocab: Vocab, tokens: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Number the tokens of the vocabulary to extend: after `tokens` all without a merge, then in merge order."""
    made = dict.fromkeys(left + right for left, right in vocab.merges)
    not_made = [token for token in vocab.ordinary_tokens if token not in made]
    known = {b"", *tokens}
    return (*tokens, *(token for token in [*not_made, *made] if token not in known))


def _number_merges(merges: Sequence[Merge], task: MergeTask, of_base: Sequence[Merge]) -> tuple[tuple[int, int], ...]:
    """Return the ids of initial merges, which begin with those of the tokenizer to extend.

    For the others, each part must be a byte or the result of an earlier merge, and no two merges may make the same
    string: then every pair is complete when it is merged, and its bytes identify one token. Every list that was learned
    is of this form.
    """
    reusable = {token: i for i, token in reversed([*enumerate(task.tokens)]) if token} if task.reuse_tokens else {}
    made = {bytes([byte]): token_id for byte, token_id in enumerate(task.byte_ids)}
    _check_base(of_base, reusable)
    pairs = [(reusable[left], reusable[right]) for left, right in of_base]
    made |= {left + right: reusable[left + right] for left, right in of_base}
    tokens = len(task.tokens)
    for index, (left, right) in enumerate(merges[len(of_base) :], len(of_base)):
        where = f"initial merge {index}, {left!r} {right!r}"
        if missing := [part for part in (left, right) if part not in made]:
            raise ConfigError(
                f"{where}: {missing[0]!r} is not a token yet: neither a byte nor the result of an earlier merge"
            )
        if left + right in made:
            raise ConfigError(f"{where}: an earlier merge makes {left + right!r} already")
        if tokens >= task.max_tokens:
            raise ConfigError(
                f"{where}: the vocabulary is full, and {len(merges) - index:,} of {len(merges):,} initial merges "
                "are left; give a larger vocab_size, or fewer merges"
            )
        pairs.append((made[left], made[right]))
        made[left + right] = reusable.get(left + right, tokens)
        tokens += made[left + right] == tokens
    return tuple(pairs)


def _check_base(merges: Sequence[Merge], tokens: Container[bytes]) -> None:
    """Refuse merges of a tokenizer that replaying them in order would not apply as the tokenizer does."""
    last = {left + right: rank for rank, (left, right) in enumerate(merges)}
    for rank, merge in enumerate(merges):
        for part in merge:
            if last.get(part, -1) >= rank or part not in tokens:
                raise ConfigError(
                    f"merge {rank}, {merge[0]!r} {merge[1]!r}, comes before a merge that makes {part!r}, so learning "
                    "cannot see the corpus as the tokenizer encodes it"
                    if part in tokens
                    else f"merge {rank}, {merge[0]!r} {merge[1]!r}: {part!r} is neither a byte nor made by a merge"
                )
