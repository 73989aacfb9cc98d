"""Token files: the ids of a corpus as one flat array, a sidecar that describes it, and an optional index. Reading them.

=================  =====================================================================================================
``train.bin``      the ids, concatenated: little-endian uint16 or uint32, and nothing else
``train.bin.json`` the sidecar: dtype, numbers of tokens and documents, the tokenizer's hash, the origin of the text
``train.bin.idx``  the index, on request: little-endian uint64, the position of each document's first token and, at the
                   end, the number of tokens; so documents + 1 numbers
=================  =====================================================================================================

The flat array is the format that training loops memory-map (nanoGPT: ``np.memmap(path, dtype=np.uint16)``). Everything
else is in separate files next to it. Other layouts hold the same ids in other files: ``npy`` puts numpy's header before
them, and ``megatron`` has another index (see `bpeflow.dataset.megatron`).

A large corpus can be divided into shards, ``train_000000.bin`` and so on. Each is a token file of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from bpeflow._util.text import as_path
from bpeflow.dataset import megatron
from bpeflow.errors import ConfigError, FormatError, TokenFileNotFoundError

DtypeName = Literal["uint16", "uint32"]
Layout = Literal["bin", "npy", "megatron"]
Split = Literal["train", "val"]
Ids = NDArray[np.uint16] | NDArray[np.uint32]
Offsets = NDArray[np.uint64]

#: Name and version of the format in the sidecar. Other versions are not read.
FORMAT, VERSION = "bpeflow tokens", 1

#: The dtypes of ids in the file.
DTYPES: dict[str, np.dtype[Any]] = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}

#: The dtype of the index in the file.
OFFSET_DTYPE = np.dtype("<u8")

#: The size of numpy's header for a one-dimensional array.
NPY_HEADER = 128

#: Endings of other files, which token files are not.
_OTHER_SUFFIXES = (
    *(".txt", ".md", ".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".yaml", ".yml", ".html", ".xml", ".idx"),
    *(".parquet", ".arrow", ".feather", ".npz", ".pt", ".pth", ".pkl", ".safetensors", ".gguf", ".h5", ".hdf5"),
    *(".gz", ".gzip", ".bz2", ".xz", ".zst", ".zstd", ".lz4", ".zip", ".tar", ".tgz"),
)


@dataclass(frozen=True)
class TokenFile:
    """The description of a token file in its sidecar, checked against the sizes of the files.

    Attributes:
        path: the file with the ids.
        dtype: ``uint16`` or ``uint32``.
        tokens: number of ids.
        checksum: the CRC-32 of the ids as they are in the file; None if it was not recorded.
        documents: number of documents.
        index: whether there is an index.
        layout: ``bin``, ``npy`` or ``megatron``.
        parts: number of parts that the ids were divided into; 1 if they were not divided.
        tokenizer_hash: the `tokenizer_hash` of the tokenizer that encoded the corpus.
        facts: the whole content of the sidecar.
    """

    path: Path
    dtype: DtypeName
    tokens: int
    checksum: int | None
    documents: int
    index: bool
    layout: Layout
    parts: int
    tokenizer_hash: str
    facts: Mapping[str, Any]

    @property
    def start(self) -> int:
        """The position of the first id in the file, in bytes."""
        return NPY_HEADER if self.layout == "npy" else 0

    def check(self, checksum: int) -> None:
        """Compare the checksum of the ids that were read with the recorded one. Raises `FormatError`."""
        if self.checksum not in (None, checksum):
            raise FormatError(
                f"{self.path}: damaged: its ids have the checksum {checksum:08x}, but the sidecar says "
                f"{self.checksum:08x}; copy it again, or encode again"
            )


def sidecar_path(path: Path) -> Path:
    """Return the path of a token file's sidecar."""
    return path.parent / f"{path.name}.json"


def index_path(path: Path, layout: Layout = "bin") -> Path:
    """Return the path of a token file's index."""
    return path.parent / f"{path.stem if layout == 'megatron' else path.name}.idx"


def split_path(path: Path, split: Split) -> Path:
    """Return the path of a split: it replaces ``train`` at the end of the name, or else is appended to the name.

    >>> [split_path(Path(name), "val").name for name in ("train.bin", "owt_train.bin", "owt.bin")]
    ['val.bin', 'owt_val.bin', 'owt_val.bin']
    """
    stem, replaced = re.subn(r"(^|[^0-9A-Za-z])train$", rf"\1{split}", path.stem)
    return path.parent / f"{stem if replaced else f'{stem}_{split}'}{path.suffix}"


def part_path(path: Path, number: int) -> Path:
    """Return the path of a part.

    >>> part_path(Path("train.bin"), 3).name
    'train_000003.bin'
    """
    return path.parent / f"{path.stem}_{number:06d}{path.suffix}"


def choose_layout(layout: Layout | None, path: Path) -> Layout:
    """Return the layout to write; None leaves the choice to the file's name.

    Raises `ConfigError` if the two differ, or if the name is one of files in other formats.
    """
    if path.suffix.lower() in _OTHER_SUFFIXES:
        raise ConfigError(f"{path}: files of tokens end in .bin, or in .npy for numpy's format")
    named: Layout = "npy" if path.suffix == ".npy" else "bin"
    differs = layout is not None and (layout == "npy") != (named == "npy")
    if differs or (layout == "megatron" and path.suffix != ".bin"):
        name = path.with_suffix(".npy" if layout == "npy" else ".bin").name
        raise ConfigError(f"{path}: is not a name for format {layout}: name it {name}, or leave out format")
    return layout or named


def choose_dtype(dtype: Literal["auto"] | DtypeName, vocab_size: int) -> DtypeName:
    """Return the dtype to write. ``auto`` is uint16 if it can hold every id of the vocabulary, else uint32.

    Raises `ConfigError` if the dtype is too small.
    """
    if dtype == "auto":
        return "uint16" if vocab_size <= 1 << 16 else "uint32"
    if dtype == "uint16" and vocab_size > 1 << 16:
        raise ConfigError(f"dtype: uint16 holds ids up to 65,535, and the vocabulary has {vocab_size:,}; use uint32")
    return dtype


# ---- reading ----


def load_tokens(path: str | Path, verify: bool = False) -> Ids:
    """Memory-map the ids of a token file, read-only. Pages are read from the disk on first access.

    Args:
        path: the token file. Its sidecar must be next to it.
        verify: read all ids now, and compare them with the checksum in the sidecar.

    Returns:
        A one-dimensional array of uint16 or uint32.

    Raises:
        FormatError: the sidecar is missing or damaged, or does not match the file: its size or, with `verify`, its
            ids.
        OSError: the file does not exist or cannot be read.

    >>> from tempfile import TemporaryDirectory
    >>> from bpeflow import Tokenizer, load_tokens
    >>> tokenizer = Tokenizer({byte: bytes([byte]) for byte in range(256)}, [], ["<|endoftext|>"])
    >>> with TemporaryDirectory() as folder:
    ...     corpus, out = Path(folder, "corpus.txt"), Path(folder, "train.bin")
    ...     _ = corpus.write_text("ab<|endoftext|>c", encoding="utf-8")
    ...     _ = tokenizer.encode_file(corpus, out)
    ...     tokens = load_tokens(out)
    >>> tokens.dtype, tokens.tolist()
    (dtype('uint16'), [97, 98, 256, 99])
    """
    return _map_ids(open_token_file(path), verify)


def load_shards(path: str | Path, verify: bool = False) -> list[Ids]:
    """Memory-map the ids of all shards of a set, as `load_tokens` does with a single token file.

    Args:
        path: the name under which the set was written, such as ``train.bin`` for ``train_000000.bin`` and so on. A
            token file that is not divided, or a single shard, is a list of one.
        verify: as for `load_tokens`.

    Returns:
        The arrays, in the order of the corpus.

    Raises:
        FormatError: as for `load_tokens`.
        OSError: a shard does not exist or cannot be read.

    >>> from tempfile import TemporaryDirectory
    >>> from bpeflow import Tokenizer, load_shards
    >>> tokenizer = Tokenizer({byte: bytes([byte]) for byte in range(256)}, [], ["<|endoftext|>"])
    >>> with TemporaryDirectory() as folder:
    ...     out = Path(folder, "train.bin")
    ...     _ = tokenizer.encode_documents(["ab", "c", "d"], out, shard_tokens=5)
    ...     shards = load_shards(out)
    >>> [shard.tolist() for shard in shards]
    [[97, 98, 256, 99, 256], [100, 256]]
    """
    return [_map_ids(file, verify) for file in open_token_files(path)]


def load_document_offsets(path: str | Path) -> Offsets:
    """Memory-map the index of a token file, read-only.

    Document `i` is ``tokens[offsets[i]:offsets[i + 1]]``, including its end token.

    Args:
        path: the token file, not the index itself.

    Returns:
        A one-dimensional array of uint64 with one entry more than there are documents.

    Raises:
        FormatError: the file has no index, or as for `load_tokens`.
        OSError: as for `load_tokens`.

    >>> from tempfile import TemporaryDirectory
    >>> from bpeflow import Tokenizer, load_document_offsets, load_tokens
    >>> tokenizer = Tokenizer({byte: bytes([byte]) for byte in range(256)}, [], ["<|endoftext|>"])
    >>> with TemporaryDirectory() as folder:
    ...     corpus, out = Path(folder, "corpus.txt"), Path(folder, "train.bin")
    ...     _ = corpus.write_text("ab<|endoftext|>c", encoding="utf-8")
    ...     _ = tokenizer.encode_file(corpus, out, index=True)
    ...     tokens, offsets = load_tokens(out), load_document_offsets(out)
    >>> offsets.tolist()
    [0, 3, 4]
    >>> tokenizer.decode(tokens[offsets[0] : offsets[1]])
    'ab<|endoftext|>'
    """
    file = open_token_file(path)
    if not file.index:
        raise FormatError(f"{file.path}: has no index of its documents; encode again with index=True")
    index = index_path(file.path, file.layout)
    offsets: Offsets
    if file.layout == "megatron":
        offsets = megatron.read_offsets(index, file.documents)
    else:
        offsets = _map(index, OFFSET_DTYPE, file.documents + 1)
    if offsets[0] != 0 or offsets[-1] != file.tokens:
        raise FormatError(
            f"{index}: goes from {offsets[0]} to {offsets[-1]}, but there are {file.tokens} tokens; "
            "it belongs to another token file"
        )
    return offsets


def open_token_files(path: str | Path) -> list[TokenFile]:
    """Open a token file, or all shards of the set that was written under this name. Raises as `load_shards` does."""
    path = as_path(path, "path")
    first = part_path(path, 0)
    if path.exists() or not first.exists():
        return [open_token_file(path)]
    shards = [part_path(path, number) for number in range(read_sidecar(first).parts)]
    for number, shard in enumerate(shards, 1):
        if not shard.exists():
            raise TokenFileNotFoundError(
                f"{shard}: shard {number} of {len(shards)} is missing: copy it, too, or encode again"
            )
    return [open_token_file(shard) for shard in shards]


def open_token_file(path: str | Path) -> TokenFile:
    """Read the sidecar of a token file and check the sizes of the files. Raises as `load_tokens` does."""
    path = as_path(path, "path")
    if path.is_dir():
        raise FormatError(f"{path}: is a folder, not a token file")
    if path.suffix == ".idx":
        raise FormatError(f"{path}: is the name of an index; give the token file that it belongs to")
    if not path.exists():
        parts = sorted(near.name for near in path.parent.glob("*") if near.name.startswith(f"{path.stem}_"))
        hint = "Tokenizer.encode_file (bpeflow encode) writes one"
        if parts := [name for name in parts if name.endswith(path.suffix)]:
            hint = f"there is {parts[0]}, up to {parts[-1]}: load these, or all shards of a split with load_shards"
        raise TokenFileNotFoundError(f"{path}: no such token file; {hint}")
    size = path.stat().st_size
    file = read_sidecar(path)
    _check_size(path, size - file.start, file.tokens, DTYPES[file.dtype])
    if file.index:
        index = index_path(path, file.layout)
        if not index.is_file():
            raise FormatError(f"{index}: is missing, although {sidecar_path(path)} mentions it; copy it, too")
        if file.layout != "megatron":
            _check_size(index, index.stat().st_size, file.documents + 1, OFFSET_DTYPE)
    return file


def read_sidecar(path: Path) -> TokenFile:
    """Read the sidecar of a token file. Raises `FormatError` if it is missing, damaged, or of another version."""
    sidecar = sidecar_path(path)
    try:
        facts = json.loads(sidecar.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FormatError(
            f"{path}: not a token file, or without {sidecar.name}, which is written beside it and has the type of its "
            "tokens: copy that, too"
        ) from None
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{sidecar}: not JSON: {error}") from None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise FormatError(f"{sidecar}: not the sidecar of a token file: format is not {FORMAT!r}")
    if facts.get("version") != VERSION:
        raise FormatError(
            f"{sidecar}: has version {facts.get('version')!r}, but this bpeflow reads version {VERSION}; update bpeflow"
        )
    field = partial(_field, sidecar, facts)
    checksum = field("crc32", _is_checksum)
    return TokenFile(
        path=path,
        dtype=field("dtype", lambda value: value in list(DTYPES)),
        tokens=field("tokens", _is_number),
        checksum=None if checksum is None else int(checksum, 16),
        documents=field("documents", _is_number),
        index=field("index", lambda value: isinstance(value, bool)),
        layout=field("layout", lambda value: value in get_args(Layout), "bin"),
        parts=field("set.shards", _is_number, 1),
        tokenizer_hash=field("tokenizer.sha256", lambda value: isinstance(value, str)),
        facts=facts,
    )


def _map_ids(file: TokenFile, verify: bool) -> Ids:
    ids = _map(file.path, DTYPES[file.dtype], file.tokens, file.start)
    if verify:
        file.check(crc32(ids.data))
    return ids


def _map(path: Path, dtype: np.dtype[Any], length: int, start: int = 0) -> NDArray[Any]:
    if length:
        return np.memmap(path, dtype, mode="r", offset=start, shape=(length,))
    empty = np.empty(0, dtype)  # an empty file cannot be mapped
    empty.flags.writeable = False
    return empty


def _check_size(path: Path, size: int, length: int, dtype: np.dtype[Any]) -> None:
    if size != length * dtype.itemsize:
        state = "cut short" if size < length * dtype.itemsize else "too long"
        raise FormatError(
            f"{path}: {state}: {size:,} bytes, but the sidecar says {length:,} numbers of {dtype.itemsize} bytes; "
            "copy it again, or encode again"
        )


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


def _is_checksum(value: object) -> bool:
    return value is None or (isinstance(value, str) and re.fullmatch("[0-9a-f]{8}", value) is not None)


def _field(sidecar: Path, facts: Any, key: str, is_valid: Callable[[object], bool], default: Any = None) -> Any:
    *sections, name = key.split(".")
    for section in sections:
        facts = facts.get(section, {})
    value = facts.get(name, default) if isinstance(facts, dict) else None
    if not is_valid(value):
        raise FormatError(f"{sidecar}: {key} is missing or damaged ({value!r}); encode again")
    return value
