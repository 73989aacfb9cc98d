"""`decode_file`: decodes a token file, or the shards of a set, to text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from zlib import crc32

import numpy as np

from bpeflow._util.atomic import atomic_path, check_not_input, check_replaceable, hold_part, remove_dead_parts
from bpeflow._util.text import short_repr
from bpeflow.dataset.token_file import DTYPES, Ids, TokenFile, index_path, open_token_files, sidecar_path
from bpeflow.errors import FormatError, UnknownTokenError
from bpeflow.formats.tokenizer_spec import tokenizer_hash
from bpeflow.progress import Observer
from bpeflow.tokenizer.tokenizer import Tokenizer

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
    tokenizer: Tokenizer,
    src: str | Path,
    dst: str | Path,
    *,
    any_tokenizer: bool = False,
    observer: Observer | None = None,
) -> DecodedFile:
    """Decode a token file, in any format, to a text file, in bounded memory. If decoding fails, no file is left.

    The text of a file that was encoded without other options equals the file. Between several files and after records,
    it has the end tokens that were added there.

    Args:
        tokenizer: the tokenizer that encoded the corpus. Its hash is compared with the one in the sidecar.
        src: the token file, or the name of a set of shards (``train.bin`` for ``train_000000.bin`` and so on), all of
            which are decoded to one text.
        dst: the text file to write, or to replace.
        any_tokenizer: decode even if the hashes differ.
        observer: progress callbacks.

    Returns:
        The sizes of the token file and of the text, and the time taken.

    Raises:
        ConfigError: `dst` is the token file or belongs to it.
        FormatError: the token file is damaged or was made by another tokenizer, or `dst` is not a regular file.
        OSError: `src` cannot be read, or `dst` cannot be written. The error names the file.
    """
    files, expected, path = open_token_files(src), tokenizer_hash(tokenizer.to_spec()), Path(dst)
    for file in files:
        check_not_input([path], [file.path, sidecar_path(file.path), index_path(file.path, file.layout)])
        if not any_tokenizer and file.tokenizer_hash != expected:
            made = file.facts["tokenizer"]
            raise FormatError(
                f"{file.path}: was made by another tokenizer, with {made.get('vocab_size')} entries and the pattern "
                f"{short_repr(made.get('pattern'))}; decode it with that one, or pass any_tokenizer=True to decode it "
                "anyway"
            )
    check_replaceable(path)
    started = perf_counter()
    done = written = 0
    total = sum(file.tokens for file in files)
    remove_dead_parts(path)
    with atomic_path(path) as temporary, temporary.open("wb") as text:
        hold_part(text)
        for file in files:
            before = 0  # ids of this file that were decoded
            for ids in _read(file):
                written += text.write(_decode(tokenizer, ids, file, before))
                before += len(ids)
                done += len(ids)
                if observer is not None:
                    observer.decoding(done * ids.itemsize, total * ids.itemsize)
    return DecodedFile(done, written, perf_counter() - started)


def _read(file: TokenFile) -> Iterator[Ids]:
    """Yield the ids of a token file, some at a time, and check them at the end.

    They are not mapped, as the file may become shorter meanwhile.
    """
    dtype, checksum = DTYPES[file.dtype], 0
    with file.path.open("rb") as stream:
        stream.seek(file.start)
        for first in range(0, file.tokens, IDS_AT_A_TIME):
            count = min(IDS_AT_A_TIME, file.tokens - first)
            ids = np.fromfile(stream, dtype, count)
            if len(ids) < count:
                raise FormatError(f"{file.path}: became shorter while it was read; run again when it is complete")
            checksum = crc32(ids.data, checksum)
            yield ids.astype(dtype.newbyteorder("="), copy=False)
    file.check(checksum)


def _decode(tokenizer: Tokenizer, ids: Ids, file: TokenFile, before: int) -> bytes:
    try:
        return tokenizer.decode_bytes(ids)
    except UnknownTokenError as error:
        where = f"{file.path}: from index {before:,} on: {error}"
        raise FormatError(f"{where}; the file is damaged, or from another tokenizer") from None
