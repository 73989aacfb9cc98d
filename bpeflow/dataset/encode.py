"""`encode_file`: encodes a corpus to a token file, or to several."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from bpeflow import __version__
from bpeflow._util.atomic import check_not_input
from bpeflow._util.delimiters import end_of_document
from bpeflow._util.text import as_path, format_count, format_size
from bpeflow.config import make_settings
from bpeflow.config.encoding import EncodeSettings
from bpeflow.corpus.documents import Delimiters, DocumentStatistics
from bpeflow.corpus.sources import (
    check_iterable,
    check_unchanged,
    each_document_once,
    find_corpus,
    split_off_documents,
)
from bpeflow.corpus.text_rules import Source, TextRules
from bpeflow.counting.fingerprint import Fingerprint
from bpeflow.dataset.corpus_encoder import BEGIN, ChunkEncoder, ChunkJoiner, CorpusEncoder, Place
from bpeflow.dataset.encode_tasks import encoded_chunks
from bpeflow.dataset.encoded_corpus import EncodedCorpus, finished_encoding, read_result
from bpeflow.dataset.journal import finish_publishing
from bpeflow.dataset.token_file import choose_dtype, choose_layout
from bpeflow.dataset.token_set import TokenSet
from bpeflow.dataset.token_writer import new_token_set
from bpeflow.errors import AlreadyExistsError, ConfigError, InputTypeError, explain_memory_error
from bpeflow.formats.tokenizer_spec import tokenizer_hash
from bpeflow.keywords import EncodeKeywords, takes_settings
from bpeflow.progress import Observer, observer_for
from bpeflow.tokenizer.parallel import validate_threads
from bpeflow.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from typing_extensions import Unpack


#: Number of special tokens that an error message lists.
_SPECIAL_TOKENS_IN_ERROR = 5

#: Remedy in the error message when memory runs out.
_LESS_MEMORY = "use fewer threads (num_threads) or a smaller chunk_size; or add memory"

#: Settings that do not affect the token files, or that the fingerprint has in another form.
_NOT_IN_FINGERPRINT = frozenset({"input", "exclude", "overwrite", "resume", "num_threads", "chunk_size", "engine"})

log = logging.getLogger(__name__)


@takes_settings
def encode_file(
    tokenizer: Tokenizer,
    src: str | Path | Sequence[str | Path | Mapping[str, Any]] | Iterable[str | bytes | Mapping[str, Any]],
    dst: str | Path,
    *,
    progress: bool = False,
    observer: Observer | None = None,
    **options: Unpack[EncodeKeywords],
) -> EncodedCorpus:
    """Encode a corpus to a token file, with a sidecar next to it (see `bpeflow.dataset.token_file`).

    The ids of a text file equal `Tokenizer.encode` of its text, so decoding restores the file. Separators in the text
    are encoded as their ids. An end token is added after each record of JSON Lines or Parquet, after each document of
    an iterable, and after a text file that does not end with a separator, if another document follows or if the format
    is ``"megatron"``, whose readers expect it after every document. Text after a file's last separator is a document,
    even if it is only a newline.

    The result does not depend on `num_threads`, `chunk_size` and `engine`. If encoding fails in the first 30 seconds,
    no files are left. After that, the ids so far are kept in temporary files, and `resume` continues.

    Args:
        tokenizer: the tokenizer.
        src: files, folders, globs, ``@lists`` of these, ``-`` for standard input, and URLs that fsspec supports;
            compressed or not. They are encoded in the given order, the files of a folder or glob sorted by path, and
            each file once. Mappings in a list are sources, as in the setting `sources`, and come last; their weights
            are ignored, and so is `max_bytes`, unless `sampled` is true. Or an iterable of documents, as for
            `bpeflow.count`.
        dst: the token file to write.
        progress: show progress on standard error, or in the notebook.
        observer: progress callbacks, instead.
        options: the other settings of `bpeflow.config.encoding.EncodeSettings`; ``bpeflow encode --help`` describes
            them. For the ids: `dtype`, `separator`, `end_token`, `special_tokens_as_text`. For the files:
            `format`, `index`, `shard_tokens`, `val_fraction`, `seed`, `overwrite`, `resume`. For the corpus: `sources`,
            `sampled`, `input_format`, `text_field`, `exclude`, `invalid_utf8`, `bad_records`. For the
            work: `num_threads`, `chunk_size`, `engine` (``{"kind": "ray"}`` for a Ray cluster, which sees the input and
            the folder of `dst` under the same paths).

    Returns:
        The files that were written, and statistics of the corpus.

    Raises:
        AlreadyExistsError: a file exists, and `overwrite` is false, or an interrupted encoding could be resumed; raised
            before any work, and again if another process has written the file meanwhile.
        ConfigError: an option is unknown, invalid or does not fit the tokenizer; raised before any work.
        CorpusError: input is missing, unreadable, or not UTF-8 (`InvalidUtf8Error`, with the position), or a record has
            no text (`BadRecordError`).
        ResumeError: with `resume`, the corpus, the tokenizer or an option has changed.
        FolderInUseError: another process is writing these token files; raised before any work.
        EngineError: the cluster cannot be reached, or a node cannot take part.
        FormatError: `dst` is not a regular file.
        OSError: `dst` cannot be written. The error names the file.
        WorkerDiedError: an encoder process was killed.

    >>> from tempfile import TemporaryDirectory
    >>> from bpeflow import Tokenizer, load_tokens
    >>> tokenizer = Tokenizer({byte: bytes([byte]) for byte in range(256)}, [], ["<|endoftext|>"])
    >>> with TemporaryDirectory() as folder:
    ...     corpus, out = Path(folder, "corpus.txt"), Path(folder, "train.bin")
    ...     _ = corpus.write_text("ab<|endoftext|>c", encoding="utf-8")
    ...     encoded = encode_file(tokenizer, corpus, out)
    ...     print(encoded.documents, load_tokens(out).tolist())
    2 [97, 98, 256, 99]
    """
    values, documents = split_off_documents({"input": src, **options})
    settings = make_settings(EncodeSettings, values)
    settings = each_document_once(settings, settings.sampled)
    path = as_path(dst, "dst")
    layout, dtype = choose_layout(settings.format, path), choose_dtype(settings.dtype, tokenizer.vocab_size)
    tokens = TokenSet(path, layout, dtype, settings)
    corpus = find_corpus(settings, documents, in_order=True)
    corpus.check_sizes(chunk_size=settings.chunk_size, shard_tokens=settings.shard_tokens)
    rules = _text_rules(tokenizer, settings, corpus.sources)
    end = _choose_end_token(tokenizer, settings.end_token, rules.delimiters.separator)
    work = CorpusEncoder(
        corpus=corpus,
        encoder=ChunkEncoder(tokenizer, rules, None if end is None else tokenizer.special_tokens[end]),
        num_threads=validate_threads(settings.num_threads),
        chunk_size=settings.chunk_size,
    )
    if settings.engine.kind != "local":
        corpus.check_distributable()
    facts = _describe(work, end, tokens)
    finish_publishing(tokens)
    outputs = [file for existing in tokens.existing_files() for file in tokens.files_of(existing)]
    check_not_input(outputs, [file.name for file in corpus.files])
    if (finished := _finished(work, tokens, facts)) is not None:
        log.info("%s is complete: nothing left to do", tokens.path)
        return finished
    with observer_for(progress, observer) as watching:
        return _encode(work, tokens, facts, watching)


def _finished(work: CorpusEncoder, tokens: TokenSet, facts: Mapping[str, Any]) -> EncodedCorpus | None:
    """With `resume`, return what complete files hold. Raise `AlreadyExistsError` for others without `overwrite`."""
    with suppress(AlreadyExistsError) if tokens.options.overwrite else nullcontext():
        if tokens.options.resume and not work.corpus.main_process_only and tokens.existing_files():
            return finished_encoding(work.corpus, tokens, facts)
        tokens.refuse_to_replace()
    return None


def _encode(work: CorpusEncoder, tokens: TokenSet, facts: Mapping[str, Any], observer: Observer) -> EncodedCorpus:
    """Encode the corpus, and write the files."""
    entries, end_last = work.corpus.entries, bool(tokens.options.end_token) or tokens.layout == "megatron"
    fingerprint = _resumable_fingerprint(work, tokens, facts)
    start: dict[str, Any] = {"place": BEGIN, "step": work.step, "done": 0, "statistics": {}, "seconds": 0.0}
    with explain_memory_error("encoding", _LESS_MEMORY), new_token_set(tokens, facts, fingerprint) as writer:
        joiner = ChunkJoiner(writer, work.encoder.end_id, end_last)
        state = writer.journal.checkpoint or start
        if state is not start:
            log.info("%s: resuming after %s", tokens.path, format_count(writer.tokens, "token"))
        if work.chunk_size not in (None, state["step"]):
            size = format_size(state["step"])
            log.warning("chunk_size: has no effect when resuming, as the chunks so far were of %s", size)
        work = replace(work, chunk_size=state["step"])
        done, statistics = state["done"], DocumentStatistics(**state["statistics"])
        started = perf_counter() - state["seconds"]
        work.look.look_at(entries)
        for chunk in encoded_chunks(work, tokens, Place(*state["place"])):
            joiner.add(chunk)
            statistics += chunk.statistics
            done += chunk.weight
            if writer.journal.is_due:
                seconds = perf_counter() - started
                state |= {"place": chunk.place, "done": done, "statistics": asdict(statistics), "seconds": seconds}
                writer.checkpoint({**state, "joiner": joiner.state})
            observer.encoding(done, work.corpus.total_bytes)
        joiner.finish()
        if not tokens.options.overwrite:
            tokens.refuse_to_replace()  # what another process has written meanwhile
        check_unchanged(entries, "run again when it is complete", may_grow=True)
        writer.facts["skipped_documents"] = statistics.skipped_documents
        writer.facts["bad_records"] = statistics.bad_records
        writer.facts["text_bytes"] = statistics.bytes
        writer.facts["split_documents"] = {split: parts.documents for split, parts in writer.splits.items()}
    encoded = read_result(work.corpus, tokens, done, perf_counter() - started)
    _warn(encoded, work.encoder, tokens)
    replace(statistics, documents=encoded.documents + statistics.skipped_documents).log_left_out(log)
    return encoded


def _resumable_fingerprint(work: CorpusEncoder, tokens: TokenSet, facts: Mapping[str, Any]) -> Fingerprint | None:
    """Return everything that an interrupted encoding depends on; None if it cannot be resumed."""
    engine = tokens.options.engine.kind
    if work.corpus.main_process_only:
        reason = "standard input and iterables can be read only once; save the documents to files first"
    elif engine != "local":
        reason = f"engine {engine} encodes in tasks, which cannot be resumed; start over without it"
    else:
        return Fingerprint.of_files({**facts["settings"], "bpeflow": __version__}, work.corpus.entries)
    if tokens.options.resume:
        raise ConfigError(f"resume: {reason}")
    return None


def _warn(encoded: EncodedCorpus, encoder: ChunkEncoder, tokens: TokenSet) -> None:
    """Warn of token files that are probably not what the user wants."""
    path, documents = tokens.path, encoded.documents
    if not encoded.tokens:
        log.warning("%s: no ids, because the corpus has no text", path)
    for split, own in (("train", documents - encoded.val_documents), ("val", encoded.val_documents)):
        if split in tokens.splits and documents and not own:
            empty, all_ = tokens.splits[split], format_count(documents, "document")
            log.warning("%s: has none of the %s: give another val_fraction or seed", empty, all_)
    indexed = tokens.has_index and tokens.layout != "megatron"  # whose readers join documents, each with its end token
    separated = tokens.options.end_token is not None or encoder.end_id is not None or indexed
    if not separated and documents > 1:
        ends = "give end_token" if encoder.tokenizer.special_tokens else "the tokenizer has no special tokens"
        index = "" if tokens.has_index else ", or add an index (index=True)"
        log.warning("%s: nothing separates its %d documents; %s%s", path, documents, ends, index)


def encode_documents(tokenizer: Tokenizer, documents: Any, dst: str | Path, **arguments: Any) -> EncodedCorpus:
    """Implement `Tokenizer.encode_documents`: encode an iterable of documents, which may be a list of texts.

    Raises `InputTypeError` for a single text, and as `encode_file` does.
    """
    check_iterable(documents)
    if isinstance(documents, str | bytes | Mapping) or not isinstance(documents, Iterable):
        raise InputTypeError(f"documents is a single {type(documents).__name__}; pass a list of documents")
    return encode_file(tokenizer, iter(documents), dst, **arguments)


def _describe(work: CorpusEncoder, end_token: str | None, tokens: TokenSet) -> dict[str, Any]:
    """Return the content of the sidecar besides its required fields."""
    encoder = work.encoder
    tokenizer, separator = encoder.tokenizer, encoder.rules.delimiters.separator
    digest = tokenizer_hash(tokenizer.to_spec())
    return {
        "tokenizer": {
            "sha256": digest,
            "vocab_size": tokenizer.vocab_size,
            "pattern": tokenizer.pattern,
            **({"normalizer": tokenizer.normalizer} if tokenizer.normalizer else {}),
        },
        "end_token": None if end_token is None else {"text": end_token, "id": encoder.end_id},
        "input": [{"path": file.name, "bytes": file.size} for file in work.corpus.files],
        "settings": {
            **tokens.options.to_json({*EncodeSettings.model_fields} - _NOT_IN_FINGERPRINT),
            "dtype": tokens.dtype,
            "format": tokens.layout,
            "separator": separator,
            "end_token": end_token,
            "tokenizer": f"{tokenizer.vocab_size:,} tokens, sha256 {digest[:16]}",
        },
        "bpeflow": __version__,
    }


# ---- options ----


def _text_rules(tokenizer: Tokenizer, settings: EncodeSettings, sources: Sequence[Source]) -> TextRules:
    """Return how text becomes documents and pre-tokens."""
    special_tokens = [*tokenizer.special_tokens]
    separator = end_of_document(special_tokens) if settings.separator is None else settings.separator or None
    delimiters = Delimiters(separator, [] if settings.special_tokens_as_text else special_tokens)
    return TextRules(
        tokenizer._pretokenizer, delimiters, settings.invalid_utf8, sources, settings.bad_records, keep_separator=True
    ).bounded()


def _choose_end_token(tokenizer: Tokenizer, end_token: str | None, separator: str | None) -> str | None:
    """Return the end token; None if there is none. Raises `ConfigError` if it is not a special token."""
    if end_token is None:
        if separator is None or separator in tokenizer.special_tokens:
            return separator
        raise ConfigError(
            f"separator: {separator!r} is not a special token of the tokenizer, so something must replace it: give "
            "end_token, a special token to end documents with, or '' for none"
        )
    if end_token and end_token not in tokenizer.special_tokens:
        known = ", ".join(map(repr, list(tokenizer.special_tokens)[:_SPECIAL_TOKENS_IN_ERROR])) or "none"
        raise ConfigError(f"end_token: {end_token!r} is not a special token of the tokenizer, which has {known}")
    return end_token or None
