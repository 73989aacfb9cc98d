"""Conversion to and from the objects of tiktoken, HuggingFace tokenizers and transformers, without files."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bpeflow.config import TransformersSettings, make_settings
from bpeflow.errors import InputTypeError, MissingLibraryError
from bpeflow.formats import huggingface, tiktoken, transformers
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.formats.untrusted import read_json
from bpeflow.keywords import HasSpec
from bpeflow.vocab import Vocab

#: Names of the objects in error messages, where files have a path.
_ENCODING, _TOKENIZER = "tiktoken.Encoding", "tokenizers.Tokenizer"


def to_tiktoken(spec: TokenizerSpec, name: str) -> Any:
    """Return a `tiktoken.Encoding`. Raises as `tiktoken.to_arguments` does."""
    library = _library("tiktoken")
    return library.Encoding(**{**tiktoken.to_arguments(spec, Path(_ENCODING)), "name": name})


def to_tokenizers(spec: TokenizerSpec) -> Any:
    """Return a `tokenizers.Tokenizer`. Raises as `huggingface.to_json` does."""
    library = _library("tokenizers")
    return library.Tokenizer.from_str(huggingface.to_json(spec, Path(_TOKENIZER)))


def to_transformers(spec: TokenizerSpec, options: Mapping[str, Any]) -> Any:
    """Return a `transformers.PreTrainedTokenizerFast`. Raises as `transformers.save` does."""
    library = _library("transformers")
    with TemporaryDirectory() as folder:
        transformers.save(spec, Path(folder), make_settings(TransformersSettings, options))
        return library.PreTrainedTokenizerFast.from_pretrained(folder)


def from_object(tokenizer: object) -> TokenizerSpec:
    """Return the content of a tokenizer of any of these libraries, of bpeflow's own, or of a `Vocab`.

    Raises:
        FormatError: bpeflow does not support the tokenizer.
        InputTypeError: the object is not such a tokenizer.
    """
    if isinstance(tokenizer, HasSpec) and not isinstance(tokenizer, type):
        spec: TokenizerSpec = tokenizer.to_spec()
        return spec
    if isinstance(tokenizer, Vocab):
        return TokenizerSpec.of(tokenizer)
    if (ranks := getattr(tokenizer, "_mergeable_ranks", None)) is not None:
        known: Any = tokenizer
        arguments = {"pat_str": known._pat_str, "special_tokens": known._special_tokens}
        return tiktoken.from_arguments(Path(_ENCODING), ranks, arguments)
    backend: Any = getattr(tokenizer, "backend_tokenizer", tokenizer)  # of transformers
    if not type(backend).__module__.startswith("tokenizers"):
        raise InputTypeError(
            f"cannot load a tokenizer from {type(tokenizer).__name__}: need a path, or a tokenizer of tiktoken, "
            "HuggingFace tokenizers, or transformers (a fast one)"
        )
    return huggingface.from_json(read_json(Path(_TOKENIZER), backend.to_str()))


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise MissingLibraryError(f"{name} is not installed: pip install {name}") from error
