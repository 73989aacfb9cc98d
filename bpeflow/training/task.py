"""What learning begins with: the tokenizer to extend (`init_from`), initial merges, and a task that numbers tokens.

Ties between pairs are broken by these numbers, or by bytes. Numbers do not depend on the ids in a vocabulary, also if
it is extended: with ``smallest_ids`` byte b has number b, and with ``huggingface`` special tokens and then bytes have
the first numbers. Tokens of merges follow in the order of ranks, old ones before new ones. (Tokens of the vocabulary to
extend that no merge makes are numbered before them.) Therefore a tokenizer that is extended on the counts that it was
trained on becomes what it would be if it had been trained to the larger size at once.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bpeflow._util.byte_level import mergeable_bytes
from bpeflow._util.text import Pattern, format_count
from bpeflow.backends.base import EncodedWords, MergeTask
from bpeflow.config import MergeSettings, Settings
from bpeflow.counting.counts import PretokenCounts
from bpeflow.errors import ConfigError, FormatError
from bpeflow.formats import any_format as formats
from bpeflow.formats import gpt2
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.keywords import HasSpec
from bpeflow.pretokenize.regex import load_pretokenizer
from bpeflow.run_dir.run_files import DECIDING_SUPERWORDS, report_of_tokenizer
from bpeflow.vocab import Merge, Vocab

log = logging.getLogger(__name__)

#: The name of a tokenizer in memory wherever a file would have its own.
TOKENIZER = "<tokenizer>"


def split_off_tokenizer(values: Mapping[str, Any]) -> tuple[Mapping[str, Any], TokenizerSpec | None]:
    """Split settings from the tokenizer or vocabulary that their `init_from` may be."""
    given = values.get("init_from")
    if isinstance(given, HasSpec):
        base = given.to_spec()
    elif isinstance(given, Vocab):
        base = TokenizerSpec.of(
            given, given.pattern or values.get("pattern"), given.unmatched or values.get("unmatched")
        )
    else:
        return values, None
    return {**values, "init_from": TOKENIZER}, base


def resolve_initial(settings: Settings, base: TokenizerSpec | None = None) -> tuple[Settings, TokenizerSpec | None]:
    """Return the tokenizer to extend, and the settings with its pattern and special tokens.

    A pattern that the settings give must be the tokenizer's, but GPT-2's two files and ranks alone have none,
    so it may be given for them. The tokenizer's special tokens follow those that the settings give, which are new or
    its own. Without `base` the tokenizer is read from `init_from`. Raises `ConfigError` if it does
    not fit the settings, or cannot be extended, and `FormatError` if its files are damaged.
    """
    path = settings.init_from
    if path is None:
        return settings, None
    if base is None:
        base = _load(path, settings)
    given = settings.model_fields_set
    is_same = {
        "pattern": _regex(base.pattern) == _regex(settings.pattern),
        "normalizer": base.normalizer == settings.normalizer,
        "unmatched": base.unmatched == settings.unmatched or not base.pretokenizer.custom,
    }
    for name in is_same.keys() & given:
        if not is_same[name]:
            raise ConfigError(
                f"init_from: {path} has the {name} {getattr(base, name)!r}, and here it is "
                f"{getattr(settings, name)!r}, with which its merges do not apply: leave it out, or count with its own"
            )
    specials = base.vocab.special_tokens
    theirs = sorted(specials, key=specials.__getitem__)
    ours = settings.special_tokens if "special_tokens" in given else ()
    refused = "superwords" in given and not settings.superwords
    superwords = {} if refused else _superwords_of(path, base, given)
    settings = settings.model_copy(
        update={
            "pattern": base.pattern,
            "unmatched": base.unmatched,
            "normalizer": base.normalizer,
            "special_tokens": tuple(dict.fromkeys([*ours, *theirs])),
            **superwords,
        }
    )
    if not settings.superwords:
        settings.check_without_superwords()
    if settings.sizes:
        smallest = settings.model_copy(update={"vocab_size": settings.sizes[0]})
        try:
            nothing = PretokenCounts.from_items(())
            after_merges(learning_task(nothing, smallest, base), nothing, base.vocab.merges, base)
        except (ConfigError, FormatError) as error:
            raise ConfigError(f"init_from: {path}: {error}") from None
    return settings, base


def spec_of(vocab: Vocab, settings: Settings, base: TokenizerSpec | None) -> TokenizerSpec:
    """Return the content of a tokenizer that a run has learned; `base` is the tokenizer that it extends."""
    if base is not None:
        return replace(base, vocab=vocab)
    return TokenizerSpec(vocab, settings.pattern, unmatched=settings.unmatched, normalizer=settings.normalizer)


def check_formats(settings: Settings, base: TokenizerSpec | None) -> None:
    """Write what is known of the tokenizer in each additional format: refuse early what a format cannot represent.

    That is the tokenizer to extend with its new special tokens, or one without merges. Raises `ConfigError`, also
    without a folder to write to.
    """
    huggingface = settings.tie_break == "huggingface"
    if base is not None:
        vocab = base.vocab.extend((), settings.special_tokens, reuse_tokens=huggingface)
    else:
        first = settings.special_tokens_first
        vocab = Vocab.build((), settings.special_tokens, special_tokens_first=first, reuse_tokens=huggingface)
    for name in settings.output.formats:
        with TemporaryDirectory() as folder:
            try:
                formats.write(spec_of(vocab, settings, base), Path(folder), name, settings.output)
            except ConfigError as error:
                raise ConfigError(f"output.{error}") from None
            except FormatError as error:
                raise ConfigError(f"output.formats: {name}: {str(error).removeprefix(f'{folder}/')}") from None
    if settings.out_dir is None and (settings.output.formats or settings.output.report):
        raise ConfigError("output: nothing is written without out_dir: give the folder of the run, or leave output out")


def _load(path: Path, settings: Settings) -> TokenizerSpec:
    from bpeflow.formats import hub  # for a tokenizer to extend only

    if str(path) == TOKENIZER:
        raise ConfigError("init_from was a tokenizer in memory, which has to be given again")
    given = settings.pattern if "pattern" in settings.model_fields_set else None
    try:
        found, known = hub.find_pretrained(path)
        format_, file = formats.find_format(found) if isinstance(found, Path) else (None, Path())
        try:
            base = formats.load(found, known=known)
        except FormatError:
            if given is None:
                raise
            base = formats.load(found, given)  # ranks alone have no pattern
    except FormatError as error:
        raise type(error)(f"init_from: {error}") from None
    alone = format_ and format_.name == "gpt2" and not (file.parent / gpt2.TOKENIZER_FILE).is_file()
    if alone and base.pattern == "gpt2":  # not the two files of another known tokenizer
        base = replace(base, normalizer=settings.normalizer)
        if given is not None:
            base = replace(base, pattern=given, unmatched=settings.unmatched)
    return base


def _superwords_of(path: Path, base: TokenizerSpec, given: Container[str]) -> dict[str, Any]:
    """Return the settings of a tokenizer's superwords that are not given, by its run's report, else by its pattern."""
    report = report_of_tokenizer(path)
    theirs: Mapping[str, Any] = report.settings if report else {"superwords": True, "superword_pattern": "superbpe"}
    if not theirs.get("superwords") or _regex(theirs["superword_pattern"]) != _regex(base.pattern):
        return {}
    limits = "the limits of its run" if report else "the default limits, as it has no run.json"
    log.info("init_from: %s has superwords: its second stage continues with %s, unless others are given", path, limits)
    theirs = {**theirs, "superword_pattern": base.pattern}
    return {name: theirs[name] for name in DECIDING_SUPERWORDS if name in theirs and name not in given}


def _regex(pattern: Pattern) -> Pattern:
    return load_pretokenizer(pattern).regex


# ---- the task ----


def learning_task(counts: PretokenCounts, settings: MergeSettings, base: TokenizerSpec | None = None) -> MergeTask:
    """Return the task of learning merges with settings that have a `vocab_size`.

    With `base`, the tokenizer to extend, its tokens are numbered, too. Raises `ConfigError` if it does not fit.
    """
    vocab_size, special_tokens = settings.vocab_size or 0, settings.special_tokens
    huggingface = settings.tie_break == "huggingface"
    vocab = None
    if base is not None:
        vocab = base.vocab.extend((), special_tokens, reuse_tokens=huggingface)
        _check_size(vocab_size, base.vocab, vocab)
        special_tokens = tuple(sorted(vocab.special_tokens, key=vocab.special_tokens.__getitem__))
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
    superwords = settings if isinstance(settings, Settings) and settings.superwords else None
    return MergeTask(
        counts=counts,
        tokens=tokens,
        byte_ids=byte_ids,
        max_tokens=max_tokens,
        order="greatest_bytes" if settings.tie_break == "greatest_bytes" else "smallest_ids",
        reuse_tokens=huggingface or base is not None,
        min_frequency=settings.min_frequency,
        max_token_length=settings.max_token_length,
        max_words=superwords.max_words if superwords else None,
        colon_rule=superwords is not None and superwords.colon_rule,
        max_search=settings.max_search,
        threads=settings.threads,
    )


def after_merges(
    task: MergeTask, counts: PretokenCounts, merges: Sequence[Merge], base: TokenizerSpec | None = None
) -> MergeTask:
    """Return the rest of a task to learn from `counts` after initial merges, which begin with the merges of `base`.

    It begins with the pre-tokens as a tokenizer with these merges encodes them (`EncodedWords`), so they must be in an
    order in which replaying them would give the same tokens. Every list that was learned is in this order. Raises
    `ConfigError` for other ones, and if the vocabulary has no room for them.
    """
    if base is None and not merges:
        return task
    base = base or TokenizerSpec(Vocab.build(()))
    of_base, known = base.vocab.merge_count, {*task.tokens}
    _check_replayable(merges, of_base, {*filter(None, base.vocab.ordinary_tokens)})
    new = merges[of_base:]
    tokens = (*task.tokens, *(left + right for left, right in new if left + right not in known))
    if len(tokens) > task.max_tokens:
        raise ConfigError(
            f"vocab_size is too small: the initial merges make {format_count(len(tokens) - task.max_tokens, 'token')} "
            "more; give a larger one, or fewer merges"
        )
    task = replace(task, tokens=tokens)
    spec = replace(base, vocab=base.vocab.extend(new))
    return replace(task, counts=_encode_words(counts, spec, task)) if len(counts) else task


def _check_size(vocab_size: int, base: Vocab, with_special_tokens: Vocab) -> None:
    new = len(with_special_tokens) - len(base)
    if vocab_size < len(with_special_tokens):
        raise ConfigError(
            f"vocab_size {vocab_size:,} is too small: the tokenizer to extend has {len(base):,} entries"
            + (f", and {format_count(new, 'new special token')} make {len(with_special_tokens):,}" if new else "")
        )


def _encode_words(counts: PretokenCounts, base: TokenizerSpec, task: MergeTask) -> EncodedWords:
    """Encode pre-tokens with a tokenizer, to the numbers of its tokens in the task."""
    from bpeflow.tokenizer.parallel import encoded_batches  # with the encoders, which only earlier merges need
    from bpeflow.tokenizer.tokenizer import new_encoder

    vocab = base.vocab
    numbers = dict(zip(reversed(task.tokens), reversed(range(len(task.tokens))), strict=True))
    number_of_id = np.zeros(len(vocab), np.uint32)
    number_of_id[[*vocab.ordinary_ids.values()]] = [*map(numbers.__getitem__, vocab.ordinary_ids)]
    if counts.cut is not None:  # a fragment can be equal to a token that only a whole pre-token becomes
        base = replace(base, whole_tokens=False)
    encoder = new_encoder(base, cache_bytes=0)  # no pre-token occurs twice
    ids: list[NDArray[np.uint32]] = []
    lengths: list[NDArray[np.int64]] = []
    for _, found, ends in encoded_batches(encoder, counts):
        ids.append(number_of_id[found])
        lengths.append(np.diff(ends, prepend=0))
    offsets = np.concatenate(([0], np.cumsum(np.concatenate(lengths))))
    return EncodedWords(np.concatenate(ids), offsets, counts.counts)


def _with_tokens_of(vocab: Vocab, tokens: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Number the tokens of the vocabulary to extend: after `tokens` all without a merge, then in merge order."""
    made = dict.fromkeys(left + right for left, right in vocab.merges)
    not_made = [token for token in vocab.ordinary_tokens if token not in made]
    known = {b"", *tokens}
    return (*tokens, *(token for token in [*not_made, *made] if token not in known))


def _check_replayable(merges: Sequence[Merge], of_base: int, tokens: Container[bytes]) -> None:
    """Refuse merges that a tokenizer does not apply as replaying them in order would.

    The first ones are of the tokenizer with these tokens. Each further one has to make a new string.
    """
    last = {left + right: rank for rank, (left, right) in enumerate(merges)}
    made: set[bytes] = set()
    for rank, (left, right) in enumerate(merges):
        unknown = [part for part in (left, right) if part not in tokens and part not in last]
        made_later = [part for part in (left, right) if last.get(part, -1) > rank]
        made_again = rank >= of_base and left + right in made
        if unknown or made_later or made_again:
            raise ConfigError(
                f"initial merge {rank}, {left!r} {right!r}: "
                + (
                    f"{unknown[0]!r} is neither a byte nor made by a merge"
                    if unknown
                    else f"a later merge makes {made_later[0]!r}, so learning cannot see the corpus as it is encoded"
                    if made_later
                    else f"an earlier merge makes {left + right!r} already"
                )
            )
        made.add(left + right)
