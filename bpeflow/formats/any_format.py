"""The list of formats, and loading and saving of tokenizers in any of them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from bpeflow._util.text import as_path, unknown_name
from bpeflow.errors import AlreadyExistsError, ConfigError, FormatError, TokenizerNotFoundError
from bpeflow.formats import gpt2
from bpeflow.formats.tokenizer_spec import TokenizerSpec, add_special_tokens, warn_of_other_pattern
from bpeflow.formats.untrusted import UNSUPPORTED
from bpeflow.pretokenize.normalizer import load_normalizer
from bpeflow.pretokenize.regex import load_pretokenizer, simplest_pattern

if TYPE_CHECKING:
    from bpeflow.config import TransformersSettings


@dataclass(frozen=True)
class Format:
    """A file format of tokenizers. The module of its name loads and saves it, and is imported when it first does.

    Attributes:
        name: its name in ``--to`` and ``output.formats``.
        files: the names in a folder of the files that make a tokenizer: first the main one, which shows the format.
        suffix: the suffix of file names in this format; empty if it is a folder with files of fixed names.
        beside: the names of files that a folder can have besides, which `transformers` writes.
    """

    name: str
    files: tuple[str, ...]
    suffix: str = ""
    beside: tuple[str, ...] = ()

    @property
    def file(self) -> str:
        """The name of the main file."""
        return self.files[0]

    @property
    def all_files(self) -> tuple[str, ...]:
        """The names of all files that a folder can have, with those for other programs."""
        return (*self.files, *self.beside)

    def matches_name(self, path: Path) -> bool:
        """Return whether a file has a name of this format, whose ending may be in capitals."""
        return path.name == self.file or bool(self.suffix and path.name.lower().endswith(self.suffix))

    def load(self, file: Path, *options: Any) -> TokenizerSpec:
        """Read a tokenizer, given the path of the main file, with options that the module takes."""
        spec: TokenizerSpec = _module(self.name).load(file if self.suffix else file.parent, *options)
        return spec

    def save(self, spec: TokenizerSpec, file: Path) -> list[Path]:
        """Write a tokenizer, given the path of the main file, and return the paths of all files written."""
        paths: list[Path] = _module(self.name).save(spec, file if self.suffix else file.parent)
        return paths


def _module(name: str) -> ModuleType:
    return import_module(f"bpeflow.formats.{name}")


_GPT2 = Format("gpt2", (gpt2.VOCAB_FILE, gpt2.MERGES_FILE, gpt2.TOKENIZER_FILE))
_TIKTOKEN = Format("tiktoken", ("tokenizer.tiktoken", "tokenizer.tiktoken.json"), ".tiktoken")
FORMATS = (
    _GPT2,
    Format(
        "huggingface",
        ("tokenizer.json",),
        ".json",
        ("tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"),
    ),
    _TIKTOKEN,
)

#: The formats that exist without a pattern, so that `load` takes it and a published description.
_WITHOUT_PATTERN = (_GPT2, _TIKTOKEN)

#: Ids without a token that a published tokenizer may have.
_UNUSED_IDS = 100

#: The names that show the folder of a training run: its report when it is finished, and a subfolder until then.
RUN_MARKS = ("run.json", "unfinished")

#: Other names of formats.
_ALIASES = {"hf": "huggingface", "tokenizers": "huggingface", "transformers": "huggingface"}

#: The files that are searched in a folder, in this order. A folder with ``bpeflow.json`` has the most complete
#: description of a tokenizer, and one with GPT-2's two files only has the least complete.
_SEARCH_ORDER = (
    (gpt2.TOKENIZER_FILE, _GPT2),
    *((known.file, known) for known in FORMATS[1:]),
    *((vocab_file, _GPT2) for vocab_file, _ in gpt2.FILE_NAMES),
)

#: Further names of files with tiktoken's ranks, used by Llama and Kimi.
_RANKS_FILES = ("tokenizer.model", "tiktoken.model")

log = logging.getLogger(__name__)


def load(
    source: str | Path | object,
    pattern: str | Sequence[str] | None = None,
    special_tokens: Mapping[str, int | None] | Iterable[str] = (),
    known: str | None = None,
    normalizer: str | Iterable[str] | None = "auto",
) -> TokenizerSpec:
    """Read a tokenizer from a file in any format, from a folder with such a file, or from an object.

    Logs a warning if the source has another pattern of its own.

    Args:
        source: the path of the file or the folder, or what `live.from_object` takes.
        pattern: the pattern; by default the files' own.
        special_tokens: further special tokens, which the files lack, as for `add_special_tokens`.
        known: the name of a published tokenizer, to use its pattern and special tokens.
        normalizer: the normalizer; by default the files' own; None for none.

    Raises:
        ConfigError: `known` or the normalizer is unknown, or the id of a special token is not free.
        FormatError: the tokenizer is missing, damaged, or of an unsupported kind.
        PatternError: the pattern is invalid.
    """
    chosen = None if pattern is None else simplest_pattern(pattern)
    if chosen is not None:
        load_pretokenizer(chosen)  # raises if it is invalid
    found, file = find_format(as_path(source, "source")) if isinstance(source, str | Path) else (None, Path())
    description = None if known is None else _module("published").find_name(known, file.parent)
    if found is None:
        spec: TokenizerSpec = _module("live").from_object(source)
    else:
        spec = found.load(file, chosen, description) if found in _WITHOUT_PATTERN else found.load(file)
    vocab = spec.vocab
    if description is not None:
        vocab = add_special_tokens(vocab, description.special_tokens)
        spec = replace(spec, normalizer=description.normalizer)
        if (unused := len(vocab) - np.count_nonzero(vocab.packed_tokens.lengths)) > _UNUSED_IDS:
            log.warning("%s: as %s, %s ids have no token, so it may be another tokenizer", file, known, f"{unused:,}")
        chosen = description.pattern if chosen is None else chosen
    if normalizer != "auto":
        spec = replace(spec, normalizer=load_normalizer(normalizer or ()).names)
    vocab = add_special_tokens(vocab, special_tokens)
    if chosen in (None, spec.pattern):
        return replace(spec, vocab=vocab)
    warn_of_other_pattern(source if isinstance(source, str | Path) else type(source).__name__, spec.pattern, chosen)
    return replace(spec, vocab=vocab, pattern=chosen, unmatched="isolate")


def save(
    spec: TokenizerSpec,
    path: Path,
    name: str | None = None,
    overwrite: bool = False,
    options: Mapping[str, Any] | None = None,
) -> list[Path]:
    """Write a tokenizer and return the paths of its files.

    Args:
        spec: the tokenizer.
        path: the file to write, if it has a name of the format; otherwise a folder, created if missing.
        name: the name of the format, or an alias such as ``hf``; by default the format of the file's ending, and
            ``gpt2`` for a folder.
        overwrite: whether to replace what is there: the file, or the files of all formats in the folder.
        options: what transformers reads from a folder in the ``huggingface`` format.

    Raises:
        ConfigError: the format is unknown or contradicts the file's ending, or the options do not fit it or the
            tokenizer.
        FormatError: the format cannot hold the tokenizer.
        AlreadyExistsError: there is such a file already, or the folder has a file of any format, and `overwrite` is
            false; or the folder is that of a training run, whose report is about its own tokenizer.
    """
    format_, file, is_file = _target(path, name)
    if any((file.parent / mark).exists() for mark in RUN_MARKS):
        raise AlreadyExistsError(f"{file.parent} is the folder of a training run: write to another folder")
    if not is_file and not path.is_dir() and (path.exists() or path.suffix[1:].isalpha()):  # unlike a folder named v1.5
        endings = ", ".join(f"{known.suffix} ({known.name})" for known in FORMATS if known.suffix)
        raise ConfigError(
            f"{path} is not the name of a file in the {format_.name} format: name a folder, or a file that ends in "
            f"{endings}"
        )
    settings = None
    if options:
        from bpeflow.config import TransformersSettings, make_settings  # pydantic

        settings = make_settings(TransformersSettings, options)
    if settings and settings.given and not takes_options(path, name):
        raise ConfigError(
            f"{', '.join(settings.given)}: only a folder in the huggingface format has a place for this; "
            + (f"{path} is the name of a file, so name a folder" if format_.beside else f"not {format_.name}")
        )
    replaced = {file} if is_file else {path / file_name for known in FORMATS for file_name in known.all_files}
    if not overwrite and any(stale.exists() for stale in replaced):
        raise AlreadyExistsError(
            f"{path} {'is' if is_file else 'holds'} {describe(path)}: write to another place, or give overwrite=True "
            "to replace it"
        )
    paths = write(spec, path, format_.name, settings)
    for stale in replaced - {*paths}:
        stale.unlink(missing_ok=True)
    return paths


def write(spec: TokenizerSpec, path: Path, name: str, settings: TransformersSettings | None = None) -> list[Path]:
    """Write a tokenizer like `save`, whatever is there. Formats without a place for the options ignore them."""
    format_, file, _ = _target(path, name)
    if not takes_options(path, name):
        return format_.save(spec, file)
    paths: list[Path] = _module("transformers").save(spec, path, settings)
    return paths


def takes_options(path: Path, name: str | None) -> bool:
    """Return whether a tokenizer in this format and place has a file for the options of transformers."""
    format_, _, is_file = _target(path, name)
    return bool(format_.beside) and not is_file


def _target(path: Path, name: str | None) -> tuple[Format, Path, bool]:
    """Return the format, the main file to write in it, and whether that is all that there is to write.

    By default the format is the one whose ending the path has, and ``gpt2`` for a folder.
    """
    matching = [] if path.is_dir() else [known for known in FORMATS if known.matches_name(path)]
    format_ = next((known for known in FORMATS if known.name == _ALIASES.get(name or "", name)), None)
    if name is None:
        format_ = next(iter(matching), _GPT2)
    if format_ is None:
        raise ConfigError(unknown_name("format", name, (known.name for known in FORMATS)))
    is_file = format_ in matching
    return format_, path if is_file else path / format_.file, is_file


def describe(path: Path) -> str:
    """Describe a tokenizer in a few words."""
    try:
        format_, file = find_format(path)
        spec = format_.load(file)
    except FormatError:
        return "a tokenizer, or a part of one" if path.is_dir() else "another file"
    written = datetime.fromtimestamp((file if file.exists() else path).stat().st_mtime, timezone.utc).date()
    size = f"{len(spec.vocab):,} entries"
    return f"a tokenizer ({size}, pattern {str(spec.pattern)[:60]}, written in the {format_.name} format on {written})"


def find_format(path: Path) -> tuple[Format, Path]:
    """Return the format of a file, or of the first known file in a folder, and the path of that file.

    Raises:
        FormatError: no file has a known format.
    """
    if path.is_dir():
        for name, known in _SEARCH_ORDER:
            if (path / name).is_file():
                return known, path / known.file
        ranks = sorted(path.glob(f"*{_TIKTOKEN.suffix}"))
        if len(ranks) == 1:
            return find_format(ranks[0])
        for name in (*_RANKS_FILES, "vocab.txt", "spiece.model", "sentencepiece.bpe.model"):
            if (path / name).is_file():
                return find_format(path / name)
        files = ", ".join(known.file for known in FORMATS)
        raise TokenizerNotFoundError(f"{path.absolute()}: no tokenizer in this folder; need one of {files}")
    if not path.is_file():
        if path.exists():
            raise FormatError(f"{path}: is neither a regular file nor a folder")
        raise TokenizerNotFoundError(f"{path}: no such file or folder")
    for known in FORMATS:
        if known.matches_name(path):
            return known, path
    if _module("tiktoken").looks_like_ranks(path):
        return _TIKTOKEN, path
    if unsupported := UNSUPPORTED.get(path.name) or UNSUPPORTED.get(path.suffix):
        raise FormatError(f"{path}: {unsupported}")
    if path.name == gpt2.MERGES_FILE or path.suffix == ".bpe":
        names = ", or ".join(" and ".join(names) for names in gpt2.FILE_NAMES)
        raise FormatError(f"{path}: merges without their vocabulary; for {names} (with these names) give their folder")
    known_files = ", ".join(f"*{known.suffix}" if known.suffix else known.file for known in FORMATS)
    raise FormatError(f"{path}: not the name of a known format; need {known_files}, or a folder with such a file")
