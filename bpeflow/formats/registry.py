"""The formats of tokenizers: what there is, and which one a path has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bpeflow._util.atomic import make_folder
from bpeflow.errors import ConfigError, FormatError
from bpeflow.formats import cs336, gpt2, huggingface, tiktoken
from bpeflow.formats import gpt2 as folder
from bpeflow.formats.spec import TokenizerSpec


@dataclass(frozen=True)
class Format:
    """One way to keep a tokenizer in files.

    Attributes:
        name: what ``--to`` and ``output.formats`` call it.
        file: the file in a folder by which the format is known; it is what `load` gets, unless the path is a file.
        suffix: how names of such files end; empty where they have no name but `file`.
        others: further files that `save` writes into the folder.
        load: reads the file.
        save: writes the file, and returns the paths of all that it wrote.
    """

    name: str
    file: str
    suffix: str
    others: tuple[str, ...]
    load: Callable[[Path], TokenizerSpec]
    save: Callable[[TokenizerSpec, Path], list[Path]]

    @property
    def files(self) -> tuple[str, ...]:
        """All that `save` writes into a folder."""
        return (self.file, *self.others)

    def has_name_of(self, path: Path) -> bool:
        """Whether a file is of this format, as far as its name tells."""
        return path.name == self.file or bool(self.suffix and path.name.endswith(self.suffix))


FORMATS = (
    Format(
        "gpt2",
        gpt2.VOCAB_FILE,
        "",
        (gpt2.MERGES_FILE, folder.TOKENIZER_FILE),
        lambda path: folder.load(path.parent),
        lambda spec, path: folder.save(spec, path.parent),
    ),
    Format("huggingface", huggingface.FILE, ".json", (), huggingface.load, huggingface.save),
    Format(
        "tiktoken",
        tiktoken.FILE,
        tiktoken.SUFFIX,
        (tiktoken.about_path(Path(tiktoken.FILE)).name,),
        tiktoken.load,
        tiktoken.save,
    ),
    Format("cs336", cs336.VOCAB_FILE, cs336.SUFFIX, (cs336.MERGES_FILE,), cs336.load, cs336.save),
)

#: In this order a folder is searched: `folder.TOKENIZER_FILE` tells everything, GPT-2's two files alone the least.
_SEARCHED = (
    (folder.TOKENIZER_FILE, FORMATS[0]),
    *((known.file, known) for known in FORMATS[1:]),
    *((vocab_file, FORMATS[0]) for vocab_file, _ in gpt2.NAMES),
)

#: Files of tokenizers that are not byte-level BPE.
_OTHERS = {
    "vocab.txt": "a WordPiece vocabulary",
    "spiece.model": "a SentencePiece model",
    "sentencepiece.bpe.model": "a SentencePiece model",
}


def load(path: Path) -> TokenizerSpec:
    """Read a tokenizer: a file of any format, or a folder with one.

    Raises `FormatError` where there is none, where it is damaged, and where it is of a kind that bpeflow does not have.
    """
    found, file = find_format(path)
    return found.load(file)


def save(spec: TokenizerSpec, path: Path, name: str) -> list[Path]:
    """Write a tokenizer in the format `name`, and return the paths of its files.

    `path` is a folder, which is made where it is missing, or the file itself, if its name ends as those of the format
    do. Raises `ConfigError` for an unknown format, and `FormatError` for what the format cannot hold.
    """
    format_ = next((known for known in FORMATS if known.name == name), None)
    if format_ is None:
        raise ConfigError(f"unknown format {name!r}; there are {', '.join(known.name for known in FORMATS)}")
    file = path if format_.has_name_of(path) and not path.is_dir() else path / format_.file
    make_folder(file.parent)
    return format_.save(spec, file)


def find_format(path: Path) -> tuple[Format, Path]:
    """The format of a file, by its name, or of the first file in a folder that has one; and that file.

    Raises `FormatError` where there is none.
    """
    if path.is_dir():
        for name, known in _SEARCHED:
            if (path / name).is_file():
                return known, path / known.file
        ranks = sorted(path.glob(f"*{tiktoken.SUFFIX}"))
        if len(ranks) == 1:
            return find_format(ranks[0])
        for name in _OTHERS:
            if (path / name).is_file():
                return find_format(path / name)
        files = ", ".join(known.file for known in FORMATS)
        raise FormatError(f"{path}: no tokenizer in it; need one of {files}")
    if not path.is_file():
        what = "is no regular file, and no folder" if path.exists() else "there is no such file or folder"
        raise FormatError(f"{path}: {what}")
    if path.name in _OTHERS:
        raise FormatError(f"{path}: {_OTHERS[path.name]}; bpeflow reads byte-level BPE only")
    for known in FORMATS:
        if known.has_name_of(path):
            return known, path
    if tiktoken.looks_like_ranks(path):
        return next(known for known in FORMATS if known.name == "tiktoken"), path
    if path.suffix == ".model":
        raise FormatError(f"{path}: a SentencePiece model; bpeflow reads byte-level BPE only")
    known_files = ", ".join(f"*{known.suffix}" if known.suffix else known.file for known in FORMATS)
    raise FormatError(f"{path}: no format has this name; known are {known_files}, or a folder with one")
