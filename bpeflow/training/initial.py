"""The tokenizers that a run begins and ends with: the one to extend (`init_from`), and the formats of the new one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bpeflow._util.text import Pattern
from bpeflow.config import Settings
from bpeflow.counting.counts import PretokenCounts
from bpeflow.errors import ConfigError, FormatError
from bpeflow.formats import any_format as formats
from bpeflow.formats import gpt2
from bpeflow.formats.tokenizer_spec import HasSpec, TokenizerSpec, TransformersOptions
from bpeflow.pretokenize.regex import load_pretokenizer
from bpeflow.training.task import learning_task
from bpeflow.vocab import END_OF_TEXT, Vocab

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

    A pattern that the settings give must be the tokenizer's, but CS336's pickles and GPT-2's two files alone have none,
    so it may be given for them. The tokenizer's special tokens follow those that the settings give, which are new or
    its own. The first one, which separates documents, is a token of its that ends texts, unless the settings name one
    or a special token of its.

    Args:
        settings: the settings of the run.
        base: the tokenizer, if the caller has it; otherwise it is read from `init_from`.

    Raises:
        ConfigError: the tokenizer does not fit the settings, or cannot be extended.
        FormatError: its files are damaged.
    """
    path = settings.init_from
    if path is None:
        return settings, None
    if base is None:
        base = _load(path, settings)
    given = settings.model_fields_set
    if "pattern" in given and _regex(base.pattern) != _regex(settings.pattern):
        raise ConfigError(
            f"init_from: {path} splits text by the pattern {base.pattern!r}, and the pattern here is "
            f"{settings.pattern!r}, with which its merges do not apply: leave out pattern, or count again with its own"
        )
    if "normalizer" in given and base.normalizer != settings.normalizer:
        its, here = (", ".join(names) or "none" for names in (base.normalizer, settings.normalizer))
        raise ConfigError(f"init_from: the normalizer of {path} is {its}, and here it is {here}: leave it out")
    custom = load_pretokenizer(base.pattern).custom
    if custom and "unmatched" in given and settings.unmatched != base.unmatched:
        raise ConfigError(
            f"init_from: in {path} unmatched is {base.unmatched}, and here it is {settings.unmatched}: leave it out"
        )
    specials = base.vocab.special_tokens
    theirs = sorted(specials, key=lambda token: (token not in END_OF_TEXT, specials[token]))
    ours = settings.special_tokens if "special_tokens" in given else ()
    if theirs and theirs[0] in END_OF_TEXT and not any(token in (*theirs, *END_OF_TEXT) for token in ours):
        ours = (theirs[0], *ours)  # documents still end as they did
    settings = settings.model_copy(
        update={
            "pattern": base.pattern,
            "unmatched": base.unmatched,
            "normalizer": base.normalizer,
            "special_tokens": tuple(dict.fromkeys([*ours, *theirs])),
        }
    )
    if settings.sizes:
        smallest = settings.model_copy(update={"vocab_size": settings.sizes[0]})
        try:
            learning_task(PretokenCounts.from_items(()), smallest, base.vocab.merges, base)
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

    That is the tokenizer to extend with its new special tokens, or one without merges.

    Raises:
        ConfigError: a format cannot represent it.
    """
    huggingface = settings.tie_break == "huggingface"
    for name in settings.output.formats:
        if base is not None:
            vocab = base.vocab.extend((), settings.special_tokens, reuse_tokens=huggingface)
        else:
            first = settings.special_tokens_first
            vocab = Vocab.build((), settings.special_tokens, special_tokens_first=first, reuse_tokens=huggingface)
        with TemporaryDirectory() as folder:
            try:
                options = TransformersOptions.of(settings.output)
                formats.write(spec_of(vocab, settings, base), Path(folder), name, options)
            except ConfigError as error:
                raise ConfigError(f"output.{error}") from None
            except FormatError as error:
                reason = str(error)
                if reason.startswith(folder):  # the name of the temporary file is of no use
                    reason = reason.partition(": ")[2]
                raise ConfigError(f"output.formats: {name}: {reason}") from None


def _load(path: Path, settings: Settings) -> TokenizerSpec:
    if str(path) == TOKENIZER:
        raise ConfigError("init_from was a tokenizer in memory, which has to be given again")
    given = settings.pattern if "pattern" in settings.model_fields_set else None
    try:
        format_, file = formats.find_format(path)
        try:
            base = formats.load(path)
        except FormatError:
            if given is None or format_.name != "tiktoken":  # ranks alone have no pattern
                raise
            base = formats.load(path, given)
    except FormatError as error:
        raise FormatError(f"init_from: {error}") from None
    alone = format_.name == "gpt2" and not (file.parent / gpt2.TOKENIZER_FILE).is_file()
    if alone and base.pattern == "gpt2":  # not the two files of another known tokenizer
        base = replace(base, normalizer=settings.normalizer)
        if given is not None:
            base = replace(base, pattern=given, unmatched=settings.unmatched)
    return base


def _regex(pattern: Pattern) -> Pattern:
    return load_pretokenizer(pattern).regex
