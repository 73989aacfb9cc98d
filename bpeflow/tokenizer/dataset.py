"""Corpora to token files, and back."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, get_args

from bpeflow.atomic import atomic_path, hold_part, remove_dead_parts
from bpeflow.corpus import CorpusFile, Delimiters, DocumentStatistics, InvalidUtf8Policy, Source, StreamTask
from bpeflow.corpus.inputs import InputFormat, InputRules, find_inputs, listed_inputs
from bpeflow.counting.unchanged import check_unchanged
from bpeflow.errors import ConfigError, FormatError, UnknownTokenError
from bpeflow.out_of_memory import memory_needed
from bpeflow.tokenizer.chunk_encoder import ChunkEncoder
from bpeflow.tokenizer.corpus_encoder import CorpusEncoder
from bpeflow.tokenizer.hash import tokenizer_hash
from bpeflow.tokenizer.parallel import checked_threads
from bpeflow.tokenizer.token_file import (
    DtypeName,
    Ids,
    TokenFile,
    choose_dtype,
    index_path,
    open_token_file,
    read_ids,
    sidecar_path,
)  # fmt: skip
from bpeflow.tokenizer.token_writer import new_token_file
from bpeflow.tokenizer.tokenizer import Tokenizer

#: Ids that are decoded at once: a few MB of text.
DECODED_AT_ONCE = 1 << 20

#: So many special tokens are named in an error.
_SHOWN = 5

#: What to do about a lack of memory.
_LESS_MEMORY = "use fewer threads (--threads) or a smaller --chunk_size; or add memory"

#: Is told how many bytes of how many are done; None where nobody knows how many there are.
Progress = Callable[[int, int | None], object]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EncodedCorpus:
    """What encoding a corpus gave.

    Attributes:
        written: the files: the ids, the sidecar, and the index if there is one.
        dtype: ``uint16`` or ``uint32``.
        tokens: how many, end tokens included.
        documents: how many documents it holds.
        skipped_documents: how many were left out for not being UTF-8.
        files: how many files the corpus has.
        bytes: how many bytes, separators included.
        seconds: wall time.
    """

    written: tuple[Path, ...]
    dtype: DtypeName
    tokens: int
    documents: int
    skipped_documents: int
    files: int
    bytes: int
    seconds: float


def encode_file(
    tokenizer: Tokenizer,
    src: str | Path | Sequence[str | Path],
    dst: str | Path,
    *,
    dtype: str = "auto",
    separator: str | None = None,
    end_token: str | None = None,
    special_tokens_as_text: bool = False,
    invalid_utf8: InvalidUtf8Policy = "error",
    index: bool = False,
    threads: int | None = None,
    chunk_size: int | None = None,
    input_format: InputFormat = "auto",
    text_field: str = "text",
    text_column: str = "text",
    progress: Progress | None = None,
) -> EncodedCorpus:
    """Encode a corpus to a token file, with a sidecar beside it (see `token_file`).

    The documents come in the order of ``src``, and each is what `Tokenizer.encode` makes of it, whatever the number of
    threads and the size of chunks. All files are there when all is done, or none.

    Args:
        tokenizer: what encodes.
        src: files, folders, globs, ``@lists`` of these, ``-`` for standard input, URLs that fsspec knows; compressed or
            not. The files of a folder or a glob come in the order of their paths, each file once.
        dst: the token file to write.
        dtype: ``auto``, ``uint16`` or ``uint32``.
        separator: what stands between documents, and is no part of them; by default the tokenizer's first special
            token; ``""`` for nothing but the ends of files.
        end_token: the special token that ends each document in the token file; by default the separator if it is a
            special token, else none; ``""`` for none.
        special_tokens_as_text: take special tokens inside documents for ordinary text: for corpora that are not to be
            trusted with them. (The separator still ends documents, unless it is ``""``.)
        invalid_utf8: ``error``, ``replace`` (with U+FFFD) or ``skip`` (leave the document out).
        index: write an index of the documents, too.
        threads: how many encode at once; by default one for each core.
        chunk_size: bytes of text that each takes at a time, by default a few MB; memory is a multiple of it.
        input_format: what the files hold: ``text``, ``jsonl``, ``parquet``, or ``auto``, as their names end.
        text_field: for JSON Lines, the field with the text; ``a.b`` is b in a.
        text_column: for Parquet, likewise.
        progress: is told how many bytes of how many are encoded and written.

    Raises:
        ConfigError: an option that does not fit the tokenizer; before any work.
        CorpusError: input that is missing or unreadable; `InvalidUtf8Error` with the place of what is not UTF-8.
        FormatError: `dst` is no regular file.
        OSError: `dst` cannot be written, with its name.
        WorkerDied: an encoder process was killed.
    """
    delimiters = _delimiters(tokenizer, separator, special_tokens_as_text)
    end = _end_token(tokenizer, end_token, delimiters.separator)
    chosen = choose_dtype(dtype, tokenizer.vocab_size)
    policy = _policy(invalid_utf8)
    corpus = CorpusEncoder(
        files=find_in_order([src] if isinstance(src, str | Path) else src, InputRules(format=input_format)),
        encoder=ChunkEncoder(
            tokenizer,
            delimiters,
            None if end is None else tokenizer.special_tokens[end],
            policy,
            Source(text_field=tuple(text_field.split(".")), text_column=tuple(text_column.split("."))),
        ),
        threads=checked_threads(threads),
        chunk_size=_checked_size(chunk_size),
    )
    path = Path(dst)
    _check_apart([path, sidecar_path(path), index_path(path)], [name for name, _ in named_files(corpus.files)])
    facts = _describe(corpus, end)
    total = None if any(size is None for _, size in named_files(corpus.files)) else corpus.bytes
    started = perf_counter()
    with memory_needed("encoding", _LESS_MEMORY), new_token_file(path, chosen, facts, index) as writer:
        statistics = DocumentStatistics()
        done = 0
        for chunk in corpus.encoded():
            writer.write(chunk.ids, chunk.ends)
            statistics += chunk.statistics
            done += chunk.weight
            if progress is not None:
                progress(done, total)
        check_unchanged(corpus.files, "run again when it is complete", may_grow=True)
        writer.facts["skipped_documents"] = statistics.skipped_documents
    if statistics.skipped_documents:
        log.warning("%d of %d documents were skipped: not UTF-8", statistics.skipped_documents, statistics.documents)
    return EncodedCorpus(
        written=(path, sidecar_path(path), *([index_path(path)] if index else [])),
        dtype=chosen,
        tokens=writer.tokens,
        documents=writer.documents,
        skipped_documents=statistics.skipped_documents,
        files=len(named_files(corpus.files)),
        bytes=statistics.bytes,
        seconds=perf_counter() - started,
    )


@dataclass(frozen=True)
class DecodedFile:
    """What decoding a token file gave: how many tokens became how many bytes, in which wall time."""

    tokens: int
    bytes: int
    seconds: float


def decode_file(
    tokenizer: Tokenizer,
    src: str | Path,
    dst: str | Path,
    *,
    any_tokenizer: bool = False,
    progress: Progress | None = None,
) -> DecodedFile:
    """Decode a token file to the bytes that its tokens stand for, in bounded memory; the whole text, or no file.

    End tokens become their text: a corpus that was encoded with its separator as end token, and whose files all end
    with the separator, comes back as it was, its files one after the other.

    Args:
        tokenizer: the one that encoded; its hash is compared with that in the sidecar.
        src: the token file.
        dst: the text to write.
        any_tokenizer: decode even if the hashes differ.
        progress: is told how many bytes of how many of the token file are decoded.

    Raises:
        FormatError: a token file that is damaged, or that another tokenizer made, or `dst` is no regular file.
        OSError: `src` cannot be read or `dst` cannot be written, with its name.
    """
    file = open_token_file(src)
    if not any_tokenizer and file.tokenizer_hash != tokenizer_hash(tokenizer.to_saved()):
        raise FormatError(
            f"{src}: was made by another tokenizer, with the hash {file.tokenizer_hash}; decode it with that one, or "
            "with --any_tokenizer (any_tokenizer=True) all the same"
        )
    path = Path(dst)
    sources = [file.path, sidecar_path(file.path), index_path(file.path)]
    _check_apart([path], [str(source) for source in sources])
    started = perf_counter()
    done = written = 0
    remove_dead_parts(path)
    with atomic_path(path) as temporary, temporary.open("wb") as text, file.path.open("rb") as stream:
        hold_part(text)
        while done < file.tokens:
            ids = read_ids(file, stream, min(file.tokens - done, DECODED_AT_ONCE))
            written += text.write(_decode(tokenizer, ids, file, done))
            done += len(ids)
            if progress is not None:
                progress(done * ids.itemsize, file.tokens * ids.itemsize)
    return DecodedFile(done, written, perf_counter() - started)


def _decode(tokenizer: Tokenizer, ids: Ids, file: TokenFile, before: int) -> bytes:
    try:
        return tokenizer.decode_bytes(ids)
    except UnknownTokenError as error:
        raise FormatError(
            f"{file.path}: behind its first {before:,} tokens: {error}; it is damaged, or of another tokenizer"
        ) from None


# ---- what the options mean ----


def find_in_order(inputs: Sequence[str | Path], rules: InputRules | None = None) -> list[CorpusFile | StreamTask]:
    """The files that ``inputs`` name, in their order; those of a folder or a glob by their paths. Each of them once.

    Raises `CorpusError` as `find_inputs` does.
    """
    if not inputs:
        return find_inputs(inputs, InputRules())  # which says what is wrong
    files: dict[str, CorpusFile | StreamTask] = {}
    for entry in inputs:
        for listed in listed_inputs(entry):
            for file in find_inputs([listed], rules or InputRules()):
                files.setdefault(_real_name(file), file)
    return list(files.values())


def _real_name(file: CorpusFile | StreamTask) -> str:
    [(name, _)] = named_files([file])
    return name if isinstance(file, StreamTask) and file.files[0].place != "file" else os.path.realpath(name)


def named_files(files: Iterable[CorpusFile | StreamTask]) -> list[tuple[str, int | None]]:
    """The names and sizes of files."""
    named: list[tuple[str, int | None]] = []
    for file in files:
        if isinstance(file, CorpusFile):
            named.append((str(file.path), file.size))
        else:
            named += [(stream.name, stream.size) for stream in file.files]
    return named


def choose_separator(tokenizer: Tokenizer, separator: str | None) -> str | None:
    """What ends documents: the separator that was given, by default the first special token; None for ``""``."""
    if separator is None:
        return next(iter(tokenizer.special_tokens), None)
    return separator or None


def _delimiters(tokenizer: Tokenizer, separator: str | None, special_tokens_as_text: bool) -> Delimiters:
    specials = [] if special_tokens_as_text else list(tokenizer.special_tokens)
    return Delimiters(choose_separator(tokenizer, separator), specials)


def _end_token(tokenizer: Tokenizer, end_token: str | None, separator: str | None) -> str | None:
    if end_token is None:
        return separator if separator in tokenizer.special_tokens else None
    if end_token and end_token not in tokenizer.special_tokens:
        known = ", ".join(map(repr, list(tokenizer.special_tokens)[:_SHOWN])) or "none"
        raise ConfigError(f"end_token: {end_token!r} is no special token of the tokenizer, which has {known}")
    return end_token or None


def _policy(invalid_utf8: InvalidUtf8Policy) -> InvalidUtf8Policy:
    if invalid_utf8 not in (policies := get_args(InvalidUtf8Policy)):
        raise ConfigError(f"invalid_utf8: {invalid_utf8!r} is none of {', '.join(policies)}")
    return invalid_utf8


def _checked_size(chunk_size: int | None) -> int | None:
    if chunk_size is not None and chunk_size < 1:
        raise ConfigError(f"chunk_size: must be at least 1 byte, not {chunk_size}")
    return chunk_size


def _check_apart(outputs: Iterable[Path], files: Iterable[str]) -> None:
    """Raise `ConfigError` where an output would take the place of an input."""
    real = {os.path.realpath(file) for file in files}
    for path in outputs:
        if os.path.realpath(path) in real:
            raise ConfigError(f"{path}: is one of the input files, which would be lost; write to another one")


def _describe(corpus: CorpusEncoder, end_token: str | None) -> dict[str, Any]:
    """What the sidecar shall tell besides what it must."""
    from importlib.metadata import version  # slow to import

    encoder = corpus.encoder
    tokenizer = encoder.tokenizer
    return {
        "skipped_documents": 0,
        "tokenizer": {
            "sha256": tokenizer_hash(tokenizer.to_saved()),
            "vocab_size": tokenizer.vocab_size,
            "pattern": tokenizer.pattern,
        },
        "separator": encoder.delimiters.separator,
        "end_token": None if end_token is None else {"text": end_token, "id": encoder.end_id},
        "special_tokens": "as ids" if encoder.delimiters.special_tokens else "as text",
        "invalid_utf8": encoder.invalid_utf8,
        "bytes": corpus.bytes,
        "input": [{"path": name, "bytes": size} for name, size in named_files(corpus.files)],
        "bpeflow": version("bpeflow"),
    }
