"""`decode_file`: a token file to text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from bpeflow._util.atomic import atomic_path, hold_part, remove_dead_parts
from bpeflow.dataset.encode import check_not_input
from bpeflow.dataset.identity import tokenizer_hash
from bpeflow.dataset.token_file import (
    Ids,
    TokenFile,
    index_path,
    open_token_file,
    read_ids,
    sidecar_path,
)
from bpeflow.errors import FormatError, UnknownTokenError
from bpeflow.progress import Observer
from bpeflow.tokenizer.tokenizer import BaseTokenizer

#: Ids that are decoded at once: a few MB of text.
DECODED_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class DecodedFile:
    """What decoding a token file gave: how many tokens became how many bytes, in which wall time."""

    tokens: int
    bytes: int
    seconds: float


def decode_file(
    tokenizer: BaseTokenizer,
    src: str | Path,
    dst: str | Path,
    *,
    any_tokenizer: bool = False,
    observer: Observer | None = None,
) -> DecodedFile:
    """Decode a token file to the bytes that its tokens stand for, in bounded memory; the whole text, or no file.

    End tokens become their text: a corpus that was encoded with its separator as end token, and whose files all end
    with the separator, comes back as it was, its files one after the other.

    Args:
        tokenizer: the one that encoded; its hash is compared with that in the sidecar.
        src: the token file.
        dst: the text to write.
        any_tokenizer: decode even if the hashes differ.
        observer: progress callbacks.

    Raises:
        FormatError: a token file that is damaged, or that another tokenizer made, or `dst` is no regular file.
        OSError: `src` cannot be read or `dst` cannot be written, with its name.
    """
    observer = observer or Observer()
    file = open_token_file(src)
    if not any_tokenizer and file.tokenizer_hash != tokenizer_hash(tokenizer.to_spec()):
        raise FormatError(
            f"{src}: was made by another tokenizer, with the hash {file.tokenizer_hash}; decode it with that one, or "
            "with --any_tokenizer (any_tokenizer=True) all the same"
        )
    path = Path(dst)
    sources = [file.path, sidecar_path(file.path), index_path(file.path)]
    check_not_input([path], [str(source) for source in sources])
    started = perf_counter()
    done = written = 0
    remove_dead_parts(path)
    with atomic_path(path) as temporary, temporary.open("wb") as text, file.path.open("rb") as stream:
        hold_part(text)
        while done < file.tokens:
            ids = read_ids(file, stream, min(file.tokens - done, DECODED_AT_ONCE))
            written += text.write(_decode(tokenizer, ids, file, done))
            done += len(ids)
            observer.decoding(done * ids.itemsize, file.tokens * ids.itemsize)
    return DecodedFile(done, written, perf_counter() - started)


def _decode(tokenizer: BaseTokenizer, ids: Ids, file: TokenFile, before: int) -> bytes:
    try:
        return tokenizer.decode_bytes(ids)
    except UnknownTokenError as error:
        raise FormatError(
            f"{file.path}: behind its first {before:,} tokens: {error}; it is damaged, or of another tokenizer"
        ) from None
