"""The options of encoding, checked: which corpus, which delimiters, which end token."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bpeflow.corpus.chunk import CorpusFile
from bpeflow.corpus.documents import Delimiters
from bpeflow.corpus.find import InputRules, find_inputs, listed_inputs
from bpeflow.corpus.formats.records import split_off_documents
from bpeflow.corpus.formats.stream import StreamTask
from bpeflow.corpus.sources import Corpus, find_corpus, input_files
from bpeflow.errors import ConfigError
from bpeflow.tokenizer.tokenizer import BaseTokenizer

#: Number of special tokens that an error message lists.
_SPECIAL_TOKENS_IN_ERROR = 5


def find_in_order(inputs: Sequence[str | Path], rules: InputRules | None = None) -> list[CorpusFile | StreamTask]:
    """Return the files of `inputs` in the given order, those of a folder or glob by path, and each file once.

    Raises `CorpusError` as `find_inputs` does.
    """
    rules = rules or InputRules()
    if not inputs or rules.sampled:  # no input raises its error; a sample is the one that training draws
        return find_inputs(inputs, rules)
    files: dict[str, CorpusFile | StreamTask] = {}
    for entry in inputs:
        for listed in listed_inputs(entry):
            for file in find_inputs([listed], rules):
                [found] = input_files(file)
                files.setdefault(os.path.realpath(found.name) if found.location == "file" else found.name, file)
    return list(files.values())


def find_corpus_in_order(values: Mapping[str, Any]) -> Corpus:
    """Find the corpus that settings describe. Raises as `find_corpus` does."""
    from bpeflow.config import CountSettings, make_settings  # pydantic, which decoding does without

    values, documents = split_off_documents(values)
    settings = make_settings(CountSettings, values)
    if weighted := [source for source in settings.sources if source.weight != 1]:
        raise ConfigError(
            f"source {weighted[0].name} has weight {weighted[0].weight}, but a token file has each document once: "
            "leave weight out; to mix sources, encode each to a file of its own"
        )
    return find_corpus(settings, documents, find_in_order)


def choose_separator(tokenizer: BaseTokenizer, separator: str | None) -> str | None:
    """Return the text that ends documents: by default the first special token. None, for ``""``, means no separator."""
    if separator is None:
        return next(iter(tokenizer.special_tokens), None)
    return separator or None


def choose_delimiters(tokenizer: BaseTokenizer, separator: str | None, special_tokens_as_text: bool) -> Delimiters:
    """Return the separator, and the special tokens that are encoded as their ids."""
    specials = [] if special_tokens_as_text else list(tokenizer.special_tokens)
    return Delimiters(choose_separator(tokenizer, separator), specials)


def choose_end_token(tokenizer: BaseTokenizer, end_token: str | None, separator: str | None) -> str | None:
    """Return the end token; None if there is none. Raises `ConfigError` if it is not a special token."""
    if end_token is None:
        if separator is None or separator in tokenizer.special_tokens:
            return separator
        raise ConfigError(
            f"separator: {separator!r} is not a special token of the tokenizer, so something must replace it: give "
            "end_token (--end_token), a special token to end documents with, or '' for none"
        )
    if end_token and end_token not in tokenizer.special_tokens:
        known = ", ".join(map(repr, list(tokenizer.special_tokens)[:_SPECIAL_TOKENS_IN_ERROR])) or "none"
        raise ConfigError(f"end_token: {end_token!r} is not a special token of the tokenizer, which has {known}")
    return end_token or None


def validate_chunk_size(chunk_size: int | None) -> int | None:
    """Return the size of a chunk, or None. Raises `ConfigError` if it is less than 1."""
    if chunk_size is not None and chunk_size < 1:
        raise ConfigError(f"chunk_size: must be at least 1 byte, not {chunk_size}")
    return chunk_size


def check_not_input(outputs: Iterable[Path], files: Iterable[str]) -> None:
    """Raise `ConfigError` if an output would replace an input."""
    inputs = {os.path.realpath(file) for file in files}
    for path in outputs:
        if os.path.realpath(path) in inputs:
            raise ConfigError(f"{path}: is one of the input files and would be overwritten; choose another output file")
