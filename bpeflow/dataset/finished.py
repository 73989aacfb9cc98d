"""What the token files of an encoding hold; whether earlier ones are complete.

`encode_file` and a resumed one that finds nothing left to do return the same `encoding_result`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bpeflow.counting.fingerprint import Fingerprint
from bpeflow.dataset.corpus_encoder import CorpusEncoder
from bpeflow.dataset.encoded_corpus import EncodedCorpus
from bpeflow.dataset.token_file import (
    Split,
    TokenFile,
    load_document_offsets,
    open_token_files,
    read_sidecar,
    sidecar_path,
)
from bpeflow.dataset.token_set import TokenSet, already_exists
from bpeflow.dataset.token_writer import TokenWriter
from bpeflow.errors import FormatError


def encoding_result(
    work: CorpusEncoder,
    tokens: TokenSet,
    facts: Mapping[str, Any],
    splits: Mapping[Split, Sequence[TokenFile | TokenWriter]],
    input_bytes: int,
    seconds: float,
) -> EncodedCorpus:
    """Return what the token files of a set hold.

    Args:
        work: how the corpus was encoded.
        tokens: the set.
        facts: the content of the first file's sidecar.
        splits: the token files of each split.
        input_bytes: size of the corpus as it is stored.
        seconds: wall time.
    """
    files, documents = [file for parts in splits.values() for file in parts], facts["split_documents"]
    return EncodedCorpus(
        written=tuple(path for file in files for path in tokens.files_of(file.path)),
        dtype=tokens.dtype,
        tokens=sum(file.tokens for file in files),
        documents=sum(documents.values()),
        end_token=end_token["text"] if (end_token := facts["end_token"]) else None,
        val_tokens=sum(file.tokens for file in splits.get("val", ())),
        val_documents=documents.get("val", 0),
        skipped_documents=facts["skipped_documents"],
        bad_records=facts["bad_records"],
        files=sum(work.corpus.file_counts()),
        bytes=facts["text_bytes"],
        input_bytes=input_bytes,
        seconds=seconds,
    )


def finished_encoding(work: CorpusEncoder, tokens: TokenSet, facts: Mapping[str, Any]) -> EncodedCorpus:
    """Return what the existing token files of a set hold.

    Args:
        work: the corpus, and how it would be encoded.
        tokens: the set.
        facts: the content of the sidecars that would be written.

    Raises:
        AlreadyExistsError: they are incomplete, or of another corpus, tokenizer or settings. The message says which.
    """
    path = tokens.existing_files()[0]
    try:
        first, written = read_sidecar(path), path.stat().st_mtime_ns
        earlier = Fingerprint(
            first.facts["settings"],
            [[file["path"], file["bytes"], None] for file in first.facts["input"]],
        )
        read = (file for entry in work.corpus.entries for file in entry.files)
        now = Fingerprint(
            facts["settings"],
            [[file.name, file.size, file.modified if (file.modified or 0) > written else None] for file in read],
        )
        if changes := now.differences(earlier):
            reason = f", and is of something else ({'; '.join(changes)})"
        else:
            splits = {split: open_token_files(path) for split, path in tokens.splits.items()}
            for file in (file for parts in splits.values() for file in parts if tokens.has_index):
                load_document_offsets(file.path)
            return encoding_result(work, tokens, first.facts, splits, work.corpus.known_bytes, 0.0)
    except (FormatError, OSError) as error:
        reason = f", but is not complete ({error})"
    except (KeyError, TypeError, AttributeError):
        reason = f", and {sidecar_path(path).name} does not say how it was encoded"
    raise already_exists(path, reason)
