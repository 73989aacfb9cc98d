"""`encode_file`: encodes a corpus to a token file, or to several."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from bpeflow import __version__
from bpeflow._util.keywords import EngineKeywords
from bpeflow._util.machine import explain_memory_error
from bpeflow._util.text import BadRecordsPolicy, InvalidUtf8Policy
from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.corpus.find import InputFormat
from bpeflow.corpus.formats.records import check_iterable
from bpeflow.corpus.reader import check_unchanged
from bpeflow.corpus.sources import input_files
from bpeflow.corpus.text_rules import TextRules
from bpeflow.dataset.chunk_encoder import ChunkEncoder
from bpeflow.dataset.corpus_encoder import ChunkJoiner, CorpusEncoder
from bpeflow.dataset.encode_options import (
    check_not_input,
    choose_delimiters,
    choose_end_token,
    find_corpus_in_order,
    validate_chunk_size,
)
from bpeflow.dataset.encode_tasks import check_distributable, choose_engine, encoded_chunks
from bpeflow.dataset.token_file import DtypeName, choose_dtype, choose_layout
from bpeflow.dataset.token_set import TokenSet
from bpeflow.dataset.token_writer import new_token_set
from bpeflow.errors import InputTypeError
from bpeflow.formats.tokenizer_spec import tokenizer_hash
from bpeflow.progress import Observer, shown
from bpeflow.tokenizer.parallel import validate_threads
from bpeflow.tokenizer.tokenizer import BaseTokenizer

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from bpeflow._util.keywords import EncodeKeywords

#: Remedy in the error message when memory runs out.
_LESS_MEMORY = "use fewer threads (--threads) or a smaller --chunk_size; or add memory"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EncodedCorpus:
    """The result of encoding a corpus.

    Attributes:
        written: the files: of each token file the ids, the sidecar and, if requested, the index.
        dtype: ``uint16`` or ``uint32``.
        tokens: number of ids, including end tokens.
        documents: number of documents in the token files.
        val_tokens: number of those ids that are in the validation split.
        val_documents: number of those documents that are in the validation split.
        skipped_documents: number of documents left out because they are not UTF-8.
        bad_records: number of records left out because they have no text.
        files: number of files in the corpus.
        bytes: size of the corpus, including separators.
        input_bytes: size of the corpus as it is stored, compressed or in JSON.
        seconds: wall time.
    """

    written: tuple[Path, ...]
    dtype: DtypeName
    tokens: int
    documents: int
    val_tokens: int
    val_documents: int
    skipped_documents: int
    bad_records: int
    files: int
    bytes: int
    input_bytes: int
    seconds: float


def encode_file(
    tokenizer: BaseTokenizer,
    src: str | Path | Sequence[str | Path | Mapping[str, Any]] | Iterable[str | bytes | Mapping[str, Any]],
    dst: str | Path,
    *,
    dtype: str = "auto",
    separator: str | None = None,
    end_token: str | None = None,
    special_tokens_as_text: bool = False,
    invalid_utf8: InvalidUtf8Policy = "error",
    bad_records: BadRecordsPolicy = "error",
    index: bool = False,
    format: str | None = None,  # noqa: A002 -- as in `Tokenizer.save`
    shard_tokens: int | None = None,
    val_fraction: float = 0.0,
    seed: int = 0,
    overwrite: bool = False,
    num_threads: int | None = None,
    chunk_size: int | None = None,
    input_format: InputFormat = "auto",
    text_field: str = "text",
    text_column: str = "text",
    exclude: str | Sequence[str] = (),
    engine: EngineKeywords | None = None,
    progress: bool = False,
    observer: Observer | None = None,
) -> EncodedCorpus:
    """Encode a corpus to a token file, with a sidecar next to it (see `bpeflow.dataset.token_file`).

    The ids of a file of text equal `Tokenizer.encode` of its text, so decoding restores the file. Its
    separators become their ids where they are. An end token is added after a file that does not end with a separator,
    if another document follows, and after each record of JSON Lines or Parquet and each document of an iterable. White
    space between a file's last separator and its end is not a document, but belongs to the one before.

    The result does not depend on `num_threads` and `chunk_size`. If encoding fails, no files are left.

    Args:
        tokenizer: the tokenizer.
        src: files, folders, globs, ``@lists`` of these, ``-`` for standard input, and URLs that fsspec supports;
            compressed or not. They are encoded in the given order, the files of a folder or glob in the order of their
            paths, and each file once. Mappings in a list are sources, as in the setting `sources` but without weights,
            and come last. Or an iterable of documents, as for `bpeflow.count`.
        dst: the token file to write.
        dtype: ``auto``, ``uint16`` or ``uint32``.
        separator: the text between documents; by default the tokenizer's first special token. With ``""`` only the ends
            of files separate documents.
        end_token: the special token that replaces separators and also ends each document that has none, the last one
            included. ``""`` means none, so that separators are left out. By default the separator, and the last
            document ends as in its file. If the separator is not a special token, `end_token` must be given.
        special_tokens_as_text: encode special tokens in documents as ordinary text, for untrusted corpora. The
            separator still ends documents, unless it is ``""``.
        invalid_utf8: what to do with input that is not UTF-8: ``error``, ``replace`` (by U+FFFD) or ``skip`` (the
            document).
        bad_records: what to do with records without text, such as lines that are not JSON: ``error`` or ``skip``.
        index: also write an index of the documents.
        format: ``bin`` for the ids alone, ``npy`` for numpy's format, or ``megatron`` for Megatron-LM's, whose index is
            in ``train.idx``. By default ``npy`` if the name of `dst` ends in that, else ``bin``.
        shard_tokens: the most ids in a file. The files are then ``train_000000.bin`` and so on. Each ends where a
            document ends. Only a document longer than that continues in the next file.
        val_fraction: the probability with which a document goes to ``val.bin`` instead of ``train.bin``. (A name that
            does not end in the word ``train`` gets ``_train`` and ``_val``.) What happens to a document depends only
            on `seed` and its number in the corpus. Its ids are the same as without a split.
        seed: chooses other documents for validation.
        overwrite: replace existing files. Further shards of an earlier set are removed, and so are shards where an
            undivided file takes their place, or the reverse.
        num_threads: number of encoder threads or processes; by default one per core.
        chunk_size: bytes of text per encoder and step; by default a few MB. Memory use is a multiple of it.
        input_format: ``text``, ``jsonl``, ``parquet``, or ``auto`` to choose by file name.
        text_field: the field of JSON Lines, and of documents that are mappings, that holds the text. ``a.b`` is field b
            of field a.
        text_column: the column of Parquet that holds the text. ``a.b`` is as for `text_field`.
        exclude: globs of files to leave out.
        engine: the machines that encode, as in the setting `engine`: ``{"kind": "ray"}`` for a Ray cluster, which sees
            the input and the folder of `dst` under the same paths. The files are the same.
        progress: show progress on standard error, or in the notebook.
        observer: progress callbacks, instead.

    Returns:
        The files that were written, and statistics of the corpus.

    Raises:
        AlreadyExistsError: a file exists, and `overwrite` is false; raised before any work.
        ConfigError: an option is invalid or does not fit the tokenizer; raised before any work.
        CorpusError: input is missing, unreadable, not UTF-8 (`InvalidUtf8Error`, which has the position), or a record
            has no text (`BadRecordError`).
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
    delimiters = choose_delimiters(tokenizer, separator, special_tokens_as_text)
    end = choose_end_token(tokenizer, end_token, delimiters.separator)
    path = Path(dst)
    ids_dtype, layout = choose_dtype(dtype, tokenizer.vocab_size), choose_layout(format, path)
    tokens = TokenSet(path, layout, ids_dtype, index, shard_tokens, val_fraction, seed)
    corpus = find_corpus_in_order(
        {
            "input": src, "input_format": input_format, "text_field": text_field, "text_column": text_column,
            "exclude": exclude, "invalid_utf8": invalid_utf8, "bad_records": bad_records,
        }
    )  # fmt: skip
    rules = TextRules(tokenizer._pretokenizer, delimiters, invalid_utf8, corpus.sources, keep_separator=True)
    work = CorpusEncoder(
        corpus=corpus,
        encoder=ChunkEncoder(tokenizer, rules, None if end is None else tokenizer.special_tokens[end]),
        num_threads=validate_threads(num_threads),
        chunk_size=validate_chunk_size(chunk_size),
    )
    machines = choose_engine(engine)
    check_distributable(corpus, machines)
    inputs = [(file.name, file.size) for entry in corpus.entries for file in input_files(entry)]
    outputs = [file for existing in tokens.existing_files() for file in tokens.files_of(existing)]
    check_not_input(outputs, [name for name, _ in inputs])
    if not overwrite:
        tokens.refuse_to_replace()
    total = None if any(size is None for _, size in inputs) else corpus.known_bytes
    started = perf_counter()
    with (
        shown(progress, observer) as watching,
        explain_memory_error("encoding", _LESS_MEMORY),
        new_token_set(tokens, _describe(work, end, inputs)) as writer,
    ):
        work.look.look_at(corpus.entries)
        statistics = DocumentStatistics()
        done = 0
        joiner = ChunkJoiner(writer, work.encoder.end_id, end_last=bool(end_token))
        for chunk in encoded_chunks(work, tokens, machines):
            joiner.add(chunk)
            statistics += chunk.statistics
            done += chunk.weight
            if watching is not None:
                watching.encoding(done, total)
        joiner.finish()
        check_unchanged(corpus.entries, "run again when it is complete", may_grow=True)
        writer.facts["skipped_documents"] = statistics.skipped_documents
        writer.facts["bad_records"] = statistics.bad_records
    val = writer.splits.get("val")
    if not writer.tokens:
        log.warning("%s: no ids, because the corpus has no text", path)
    if val and not 0 < val.documents < writer.documents:
        log.warning("%s: a split has none of the %d documents; change val_fraction or seed", path, writer.documents)
    if end_token is None and not tokenizer.special_tokens and not tokens.has_index and writer.documents > 1:
        log.warning(
            "%s: nothing separates its %d documents, as the tokenizer has no special tokens; add an index (--index)",
            path,
            writer.documents,
        )
    replace(statistics, documents=writer.documents + statistics.skipped_documents).log_left_out(log)
    return EncodedCorpus(
        written=tuple(file for written in writer.paths() for file in tokens.files_of(written)),
        dtype=ids_dtype,
        tokens=writer.tokens,
        documents=writer.documents,
        val_tokens=val.tokens if val else 0,
        val_documents=val.documents if val else 0,
        skipped_documents=statistics.skipped_documents,
        bad_records=statistics.bad_records,
        files=sum(corpus.file_counts()),
        bytes=statistics.bytes,
        input_bytes=done,
        seconds=perf_counter() - started,
    )


def encode_documents(
    tokenizer: BaseTokenizer,
    documents: Iterable[str | bytes | Mapping[str, Any]],
    dst: str | Path,
    **options: Unpack[EncodeKeywords],
) -> EncodedCorpus:
    """Encode documents to a token file, as `encode_file` does with the records of a file.

    Args:
        tokenizer: the tokenizer.
        documents: the documents: each a `str`, `bytes` of UTF-8, or a mapping with the text in `text_field`, such as
            the rows of a HuggingFace dataset. Read once, in the calling process.
        dst: the token file to write.
        options: other parameters of `encode_file`.

    Returns:
        The files that were written, and statistics of the documents.

    Raises:
        InputTypeError: `documents` is a single text, or a document is of none of the known types.
        Exception: as `encode_file` does.

    >>> from tempfile import TemporaryDirectory
    >>> from bpeflow import Tokenizer, load_tokens
    >>> tokenizer = Tokenizer({byte: bytes([byte]) for byte in range(256)}, [], ["<|endoftext|>"])
    >>> with TemporaryDirectory() as folder:
    ...     encoded = encode_documents(tokenizer, ["ab", {"text": "c"}], Path(folder, "train.bin"))
    ...     print(encoded.documents, load_tokens(Path(folder, "train.bin")).tolist())
    2 [97, 98, 256, 99, 256]
    """
    check_iterable(documents)
    if isinstance(documents, str | bytes | Mapping):
        raise InputTypeError(f"documents is a single {type(documents).__name__}; pass a list of documents")
    return encode_file(tokenizer, iter(documents), dst, **options)


def _describe(work: CorpusEncoder, end_token: str | None, inputs: Sequence[tuple[str, int | None]]) -> dict[str, Any]:
    """Return the content of the sidecar besides its required fields."""
    encoder = work.encoder
    tokenizer = encoder.tokenizer
    return {
        "skipped_documents": 0,
        "bad_records": 0,
        "tokenizer": {
            "sha256": tokenizer_hash(tokenizer.to_spec()),
            "vocab_size": tokenizer.vocab_size,
            "pattern": tokenizer.pattern,
            **({"normalizer": tokenizer.normalizer} if tokenizer.normalizer else {}),
        },
        "separator": encoder.rules.delimiters.separator,
        "end_token": None if end_token is None else {"text": end_token, "id": encoder.end_id},
        "special_tokens": "as ids" if encoder.rules.delimiters.special_tokens else "as text",
        "invalid_utf8": encoder.rules.invalid_utf8,
        "bytes": work.corpus.known_bytes,
        "input": [{"path": name, "bytes": size} for name, size in inputs],
        "samples": {source.name: asdict(source.sample) for source in work.corpus.sources if source.sample},
        "bpeflow": __version__,
    }
