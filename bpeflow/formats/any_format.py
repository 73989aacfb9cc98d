"""The list of formats, and loading and saving of tokenizers in any of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryDirectory

from bpeflow.errors import AlreadyExistsError, ConfigError, FormatError
from bpeflow.formats import cs336, gpt2, huggingface, tiktoken, transformers
from bpeflow.formats.published import find_name
from bpeflow.formats.tokenizer_spec import TokenizerSpec, add_special_tokens
from bpeflow.formats.transformers import NO_OPTIONS, TransformersOptions
from bpeflow.pretokenize.regex import load_pretokenizer, simplest_pattern


@dataclass(frozen=True)
class Format:
    """A file format of tokenizers.

    Attributes:
        name: its name in ``--to`` and ``output.formats``.
        file: the main file's name in a folder, by which the format is recognised.
        suffix: the suffix of file names in this format; empty if the only name is `file`.
        others: the names of further files that `save` writes to the folder.
        load: reads a tokenizer, given the path of the main file.
        save: writes a tokenizer, given the path of the main file, and returns the paths of all files that it wrote.
        save_folder: writes a folder with further files for other programs; None if there are none.
        beside: the names that these files can have.
    """

    name: str
    file: str
    suffix: str
    others: tuple[str, ...]
    load: Callable[[Path], TokenizerSpec]
    save: Callable[[TokenizerSpec, Path], list[Path]]
    save_folder: Callable[[TokenizerSpec, Path, TransformersOptions], list[Path]] | None = None
    beside: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the files that make a tokenizer."""
        return (self.file, *self.others)

    @property
    def all_files(self) -> tuple[str, ...]:
        """The names of all files that a folder can have, with those for other programs."""
        return (*self.files, *self.beside)

    def matches_name(self, path: Path) -> bool:
        """Return whether a file has a name of this format."""
        return path.name == self.file or bool(self.suffix and path.name.endswith(self.suffix))


FORMATS = (
    Format(
        "gpt2",
        gpt2.VOCAB_FILE,
        "",
        (gpt2.MERGES_FILE, gpt2.TOKENIZER_FILE),
        lambda path: gpt2.load(path.parent),
        lambda spec, path: gpt2.save(spec, path.parent),
    ),
    Format(
        "huggingface",
        huggingface.FILE,
        ".json",
        (),
        huggingface.load,
        huggingface.save,
        transformers.save,
        (transformers.CONFIG_FILE, transformers.SPECIAL_TOKENS_FILE, transformers.CHAT_TEMPLATE_FILE),
    ),
    Format(
        "tiktoken",
        tiktoken.FILE,
        tiktoken.SUFFIX,
        (tiktoken.sidecar_path(Path(tiktoken.FILE)).name,),
        tiktoken.load,
        tiktoken.save,
    ),
    Format("cs336", cs336.VOCAB_FILE, cs336.SUFFIX, (cs336.MERGES_FILE,), cs336.load, cs336.save),
)

#: The files that are searched in a folder, in this order. A folder with ``bpeflow.json`` has the most complete
#: description of a tokenizer, and one with GPT-2's two files only has the least complete.
_SEARCH_ORDER = (
    (gpt2.TOKENIZER_FILE, FORMATS[0]),
    *((known.file, known) for known in FORMATS[1:]),
    *((vocab_file, FORMATS[0]) for vocab_file, _ in gpt2.FILE_NAMES),
)

#: Names that tiktoken's ranks also have: those of Llama and of Kimi.
_RANKS_FILES = ("tokenizer.model", "tiktoken.model")

_SENTENCEPIECE = "a SentencePiece model, which sentencepiece reads"

#: Files of tokenizers that are not byte-level BPE.
_UNSUPPORTED = {
    "vocab.txt": "a WordPiece vocabulary, which transformers reads",
    "spiece.model": _SENTENCEPIECE,
    "sentencepiece.bpe.model": _SENTENCEPIECE,
}


def load(
    path: Path,
    pattern: str | Sequence[str] | None = None,
    special_tokens: Mapping[str, int | None] | Iterable[str] = (),
    known: str | None = None,
) -> TokenizerSpec:
    """Read a tokenizer from a file in any format, or from a folder with such a file.

    Args:
        path: the file or the folder.
        pattern: the pattern; by default that of the files.
        special_tokens: special tokens besides those in the files, as for `add_special_tokens`.
        known: the name of a published tokenizer, whose pattern and special tokens these files are used with.

    Raises:
        ConfigError: `known` is unknown, or the id of a special token is not free.
        FormatError: the tokenizer is missing, damaged, or of an unsupported kind.
        PatternError: the pattern is invalid.
    """
    chosen = None if pattern is None else simplest_pattern(pattern)
    if chosen is not None:
        load_pretokenizer(chosen)  # raises if it is invalid
    found, file = find_format(path)
    description = None if known is None else find_name(known, file.parent)
    spec = tiktoken.load(file, chosen, description) if found.name == "tiktoken" else found.load(file)
    vocab = spec.vocab
    if description is not None:
        vocab = add_special_tokens(vocab, description.special_tokens)
        spec = replace(spec, normalizer=description.normalizer)
        chosen = description.pattern if chosen is None else chosen
    vocab = add_special_tokens(vocab, special_tokens)
    if chosen in (None, spec.pattern):
        return replace(spec, vocab=vocab)
    return replace(spec, vocab=vocab, pattern=chosen, unmatched="isolate")


def save(
    spec: TokenizerSpec,
    path: Path,
    name: str,
    overwrite: bool = False,
    options: TransformersOptions = NO_OPTIONS,
) -> list[Path]:
    """Write a tokenizer and return the paths of its files.

    A folder may hold one tokenizer, in any number of formats.

    Args:
        spec: the tokenizer.
        path: the file to write, if its name is one of the format; otherwise a folder, which is created if it is
            missing.
        name: the name of the format.
        overwrite: whether to replace another tokenizer that is there: a file, or its files of all formats in a folder.
        options: what transformers reads from a folder in the ``huggingface`` format.

    Raises:
        ConfigError: the format is unknown, or the options do not fit it or the tokenizer.
        FormatError: the format cannot hold the tokenizer.
        AlreadyExistsError: there is another tokenizer, or another file, and `overwrite` is false.
    """
    target = _target(path, name)
    if options != NO_OPTIONS and (target.is_file or target.format.save_folder is None):
        given = ", ".join(key for key, value in vars(options).items() if value != getattr(NO_OPTIONS, key))
        raise ConfigError(
            f"{given}: only a folder in the huggingface format has a place for this; "
            + (f"{path} is the name of a file, so name a folder" if target.format.save_folder else f"not {name}")
        )
    replaces = _holds_another(path, spec, target, options)
    is_same = replaces and path.is_dir() and _holds_same(path, spec)
    if replaces and not overwrite:
        found = "this tokenizer with other options" if is_same else describe(path)
        raise AlreadyExistsError(
            f"{path} {'holds' if path.is_dir() else 'is'} {found}: write to another place, or give overwrite=True "
            "(--overwrite) to replace it"
        )
    paths = target.write(spec, options)
    if replaces and path.is_dir():
        replaced = [target.format] if is_same else FORMATS
        for stale in {path / file_name for known in replaced for file_name in known.all_files} - {*paths}:
            stale.unlink(missing_ok=True)
    return paths


def write(spec: TokenizerSpec, path: Path, name: str, options: TransformersOptions = NO_OPTIONS) -> list[Path]:
    """Write a tokenizer like `save`, whatever is there. Formats without a place for the options ignore them."""
    return _target(path, name).write(spec, options)


@dataclass(frozen=True)
class _Target:
    """What to write: the main file of a format, alone (`is_file`) or with all others in its folder."""

    format: Format
    file: Path
    is_file: bool

    def write(self, spec: TokenizerSpec, options: TransformersOptions) -> list[Path]:
        if self.format.save_folder is None or self.is_file:
            return self.format.save(spec, self.file)
        return self.format.save_folder(spec, self.file.parent, options)

    def exists(self) -> bool:
        return any(path.exists() for path in self._files())

    def is_saved(self, spec: TokenizerSpec, options: TransformersOptions) -> bool:
        """Return whether those files of a tokenizer that exist already have the content that would be written."""
        with TemporaryDirectory() as folder:
            try:
                written = replace(self, file=Path(folder) / self.file.name).write(spec, options)
            except FormatError:  # the format cannot hold it
                return False
            contents = {self.file.with_name(path.name): path.read_bytes() for path in written}
        return all(path.read_bytes() == contents.get(path) for path in {*contents, *self._files()} if path.exists())

    def _files(self) -> list[Path]:
        return [self.file] if self.is_file else [self.file.with_name(name) for name in self.format.all_files]


def _target(path: Path, name: str) -> _Target:
    """Return the format and the main file to write in it."""
    format_ = next((known for known in FORMATS if known.name == name), None)
    if format_ is None:
        raise ConfigError(f"unknown format {name!r}; need one of {', '.join(known.name for known in FORMATS)}")
    is_file = format_.matches_name(path) and not path.is_dir()
    return _Target(format_, path if is_file else path / format_.file, is_file)


def _holds_another(path: Path, spec: TokenizerSpec, target: _Target, options: TransformersOptions) -> bool:
    """Return whether saving to `path` would replace other content, or leave a second tokenizer in a folder."""
    if target.exists() and not target.is_saved(spec, options):
        return True
    if target.is_file:
        return False
    try:
        found, main = find_format(path)
    except FormatError:
        return False
    if main.exists() and (main == target.file or _Target(found, main, is_file=True).is_saved(spec, options)):
        return False
    try:
        return load(path).vocab != spec.vocab  # of another program, which may write the same in other bytes
    except FormatError:
        return True


def _holds_same(folder: Path, spec: TokenizerSpec) -> bool:
    try:
        return load(folder) == spec
    except FormatError:
        return False


def describe(path: Path) -> str:
    """Describe a tokenizer in a few words."""
    try:
        format_, file = find_format(path)
        spec = format_.load(file)
    except FormatError:
        return "another tokenizer, or a part of one" if path.is_dir() else "another file"
    written = datetime.fromtimestamp((file if file.exists() else path).stat().st_mtime, timezone.utc).date()
    size = f"{len(spec.vocab):,} entries"
    return f"another tokenizer ({size}, {str(spec.pattern)[:60]}, {format_.name} format, written {written})"


def format_of_name(path: Path) -> str:
    """Return the name of the format that a path to write to has the ending of; ``gpt2`` for a folder."""
    matching = (known.name for known in FORMATS if known.matches_name(path) and not path.is_dir())
    return next(matching, "gpt2")


def find_format(path: Path) -> tuple[Format, Path]:
    """Return the format of a file, or of the first known file in a folder, and the path of that file.

    Raises:
        FormatError: no file has a known format.
    """
    if path.is_dir():
        for name, known in _SEARCH_ORDER:
            if (path / name).is_file():
                return known, path / known.file
        ranks = sorted(path.glob(f"*{tiktoken.SUFFIX}"))
        if len(ranks) == 1:
            return find_format(ranks[0])
        for name in (*_RANKS_FILES, *_UNSUPPORTED):
            if (path / name).is_file():
                return find_format(path / name)
        files = ", ".join(known.file for known in FORMATS)
        raise FormatError(f"{path}: no tokenizer in this folder; need one of {files}")
    if not path.is_file():
        problem = "is neither a regular file nor a folder" if path.exists() else "no such file or folder"
        raise FormatError(f"{path}: {problem}")
    if path.name in _UNSUPPORTED:
        raise FormatError(f"{path}: {_UNSUPPORTED[path.name]}; bpeflow reads byte-level BPE only")
    for known in FORMATS:
        if known.matches_name(path):
            return known, path
    if tiktoken.looks_like_ranks(path):
        return next(known for known in FORMATS if known.name == "tiktoken"), path
    if path.suffix == ".model":
        raise FormatError(f"{path}: {_SENTENCEPIECE}; bpeflow reads byte-level BPE only")
    if path.name == gpt2.MERGES_FILE or path.suffix == ".bpe":
        names = ", or ".join(" and ".join(names) for names in gpt2.FILE_NAMES)
        raise FormatError(f"{path}: merges without their vocabulary; for {names} (with these names) give their folder")
    known_files = ", ".join(f"*{known.suffix}" if known.suffix else known.file for known in FORMATS)
    raise FormatError(f"{path}: not the name of a known format; need {known_files}, or a folder with such a file")
