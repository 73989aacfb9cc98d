"""`decode_file`: decodes a token file to text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from bpeflow._util.atomic import atomic_path, hold_part, remove_dead_parts
from bpeflow.dataset.encode import check_not_input
from bpeflow.dataset.token_file import Ids, TokenFile, index_path, open_token_file, read_ids, sidecar_path
from bpeflow.errors import FormatError, UnknownTokenError
from bpeflow.progress import Observer, shown
from bpeflow.tokenizer.identity import tokenizer_hash
from bpeflow.tokenizer.tokenizer import BaseTokenizer

#: Ids that are decoded at a time. More: fewer calls. Fewer: less memory, a few MB of text for this many.
IDS_AT_A_TIME = 1 << 20


@dataclass(frozen=True)
class DecodedFile:
    """The result of decoding a token file.

    Attributes:
        tokens: number of ids.
        bytes: size of the text.
        seconds: wall time.
    """

    tokens: int
    bytes: int
    seconds: float


def decode_file(
    tokenizer: BaseTokenizer,
    src: str | Path,
    dst: str | Path,
    *,
    any_tokenizer: bool = False,
    progress: bool = False,
    observer: Observer | None = None,
) -> DecodedFile:
    """Decode a token file to a text file, in bounded memory. If decoding fails, no file is left.

    The text of a file that was encoded without other options equals the file. Between several files and after records,
    it has the end tokens that were added there.

    Args:
        tokenizer: the tokenizer that encoded the corpus. Its hash is compared with the one in the sidecar.
        src: the token file.
        dst: the text file to write.
        any_tokenizer: decode even if the hashes differ.
        progress: show progress on standard error, or in the notebook.
        observer: progress callbacks, instead.

    Returns:
        The sizes of the token file and of the text, and the time taken.

    Raises:
        ConfigError: `dst` is the token file or belongs to it.
        FormatError: the token file is damaged or was made by another tokenizer, or `dst` is not a regular file.
        OSError: `src` cannot be read, or `dst` cannot be written. The error names the file.
    """
    file = open_token_file(src)
    if not any_tokenizer and file.tokenizer_hash != tokenizer_hash(tokenizer.to_spec()):
        raise FormatError(
            f"{src}: was made by another tokenizer, with the hash {file.tokenizer_hash}; decode it with that "
            "tokenizer, or pass --any_tokenizer (any_tokenizer=True) to decode it anyway"
        )
    path = Path(dst)
    sources = [file.path, sidecar_path(file.path), index_path(file.path)]
    check_not_input([path], [str(source) for source in sources])
    started = perf_counter()
    done = written = 0
    remove_dead_parts(path)
    with (
        shown(progress, observer) as watching,
        atomic_path(path) as temporary,
        temporary.open("wb") as text,
        file.path.open("rb") as stream,
    ):
        hold_part(text)
        while done < file.tokens:
            ids = read_ids(file, stream, min(file.tokens - done, IDS_AT_A_TIME))
            written += text.write(_decode(tokenizer, ids, file, done))
            done += len(ids)
            if watching is not None:
                watching.decoding(done * ids.itemsize, file.tokens * ids.itemsize)
    return DecodedFile(done, written, perf_counter() - started)


def _decode(tokenizer: BaseTokenizer, ids: Ids, file: TokenFile, before: int) -> bytes:
    try:
        return tokenizer.decode_bytes(ids)
    except UnknownTokenError as error:
        raise FormatError(
            f"{file.path}: after its first {before:,} tokens: {error}; the file is damaged, or from another tokenizer"
        ) from None
