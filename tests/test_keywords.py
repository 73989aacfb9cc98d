"""Keyword arguments of the public functions are typed as the settings are. The type checker checks this file, too."""

from __future__ import annotations

import inspect
import pydoc
from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin, get_type_hints

import pytest
from pydantic import BaseModel, ByteSize

import bpeflow
from bpeflow import config, keywords
from bpeflow.backends import BACKENDS
from bpeflow.config.encoding import EncodeSettings
from bpeflow.config.sections import Paths
from bpeflow.dataset.encode import encode_file
from bpeflow.tokenizer.tokenizer import ENCODERS, EncoderName
from bpeflow.vocab import Vocab

NESTED: dict[Any, Any] = {
    config.SourceSettings: keywords.SourceKeywords,
    config.EngineSettings: keywords.EngineKeywords,
    config.OutputSettings: keywords.OutputKeywords,
    config.MonitorSettings: keywords.MonitorKeywords,
    config.ThinRare: keywords.ThinRareKeywords,
}
TYPED = [
    *((model, typed, ()) for model, typed in NESTED.items()),
    (config.CountSettings, keywords.CountKeywords, ("input", "pattern", "special_tokens")),
    (config.CorpusSettings, keywords.CorpusKeywords, ("input",)),
    (EncodeSettings, keywords.EncodeKeywords, ("input",)),
    (config.MergeSettings, keywords.LearnKeywords, ("vocab_size", "special_tokens", "backend")),
    (config.Settings, keywords.TrainKeywords, ("input", "vocab_size", "special_tokens")),
    (config.Settings, keywords.TokenizerKeywords, ("input", "vocab_size", "vocab_sizes", "skip_merge")),
]


def accepted(annotation: Any) -> Any:
    """Return the type of the values that a field accepts, of which its own type is what becomes of them."""
    arguments = get_args(annotation)
    if get_origin(annotation) is Annotated:
        return keywords.Paths if annotation == Paths else accepted(arguments[0])
    if get_origin(annotation) in (Union, UnionType):
        return reduce(or_, map(accepted, arguments))
    if get_origin(annotation) is tuple:
        return accepted(arguments[0]) | Sequence[accepted(arguments[0])]  # type: ignore[misc]
    others: dict[Any, Any] = {ByteSize: keywords.Size, Path: str | Path, NoneType: None, **NESTED}
    others[config.MonitorSettings] |= bool
    others[config.EngineSettings] |= keywords.EngineName
    return others.get(annotation, annotation)


def hints(of: Any) -> dict[str, Any]:
    return get_type_hints(of, localns={"Observer": bpeflow.Observer, "Vocab": Vocab})


@pytest.mark.parametrize(("model", "typed", "others"), TYPED, ids=lambda value: getattr(value, "__name__", ""))
def test_keywords_are_those_of_the_settings(model: type[BaseModel], typed: type, others: tuple[str, ...]) -> None:
    fields = get_type_hints(model, include_extras=True)
    expected = {name: accepted(fields[name]) for name in model.model_fields if name not in others}
    if "init_from" in expected:  # `train` takes a tokenizer in memory out of the settings
        expected["init_from"] |= keywords.HasSpec | Vocab
        expected["backend"] = keywords.BackendName
    assert hints(typed) == expected


@pytest.mark.parametrize(
    ("function", "typed"),
    [
        (bpeflow.count, keywords.CountKeywords),
        (bpeflow.evaluate, keywords.CorpusKeywords),
        (bpeflow.learn_merges, keywords.LearnKeywords),
        (bpeflow.train_bpe, keywords.TrainKeywords),
        (bpeflow.Tokenizer.train, keywords.TokenizerKeywords),
        (bpeflow.Tokenizer.train_from_iterator, keywords.TokenizerKeywords),
        (bpeflow.Tokenizer.encode_file, keywords.EncodeKeywords),
        (encode_file, keywords.EncodeKeywords),
        (bpeflow.Tokenizer.save, keywords.TransformersKeywords),
    ],
)
def test_the_public_functions_take_them(function: Callable[..., Any], typed: type) -> None:
    """Help and completion show each of them with its type."""
    assert f"Unpack[{typed.__name__}]" in function.__annotations__.values()
    parameters = inspect.signature(function).parameters
    assert [*parameters][-len(hints(typed)) :] == [*typed.__annotations__]
    assert not any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters.values())


def test_help_has_the_settings_with_their_types() -> None:
    shown = pydoc.plain(pydoc.render_doc(bpeflow.Tokenizer.train))
    assert "min_frequency: 'int' = " in shown
    assert "output: 'OutputKeywords' = " in shown
    assert "backend: 'BackendName' = " in shown
    assert "which `bpeflow config` describes" in shown


def test_names_are_typed_as_they_are_checked() -> None:
    assert get_args(keywords.BackendName) == ("auto", *(backend.name for backend in BACKENDS))
    assert get_args(EncoderName) == ("auto", *ENCODERS)


def test_the_settings_accept_values_of_these_types(tmp_path: Path) -> None:
    given: keywords.TrainKeywords = {
        "sources": {"paths": tmp_path, "max_bytes": "1mb"},
        "exclude": [tmp_path, "*.bak"],
        "chunk_size": 1000,
        "memory_limit": "1gb",
        "scratch_dir": str(tmp_path),
        "vocab_sizes": 300,
        "engine": {"task_memory": "1gb"},
        "output": {"formats": "tiktoken"},
        "monitor": {"interval": 1},
    }
    settings = config.make_settings(config.Settings, {**given, "special_tokens": "<s>"})
    assert (settings.special_tokens, settings.vocab_sizes, settings.chunk_size) == (("<s>",), (300,), 1000)


if TYPE_CHECKING:  # mypy reports both an error that is missing here and one that is too many
    bpeflow.train_bpe("a.txt", 1000, ["<s>"], backend="omp", memory_limit="4gb", monitor={"interval": 8})
    bpeflow.train_bpe("a.txt", 1000, ["<s>"], monitor=True, engine="ray")
    bpeflow.train_bpe("a.txt", 1000, ["<s>"], engine="spark")  # type: ignore[arg-type]
    bpeflow.train_bpe("a.txt", 1000, ["<s>"], bakend="omp")  # type: ignore[call-arg]
    bpeflow.train_bpe("a.txt", 1000, ["<s>"], backend="opm")  # type: ignore[arg-type]
    bpeflow.learn_merges({"low": 5}, 300, backend="opm")  # type: ignore[arg-type]
    bpeflow.Tokenizer.load("runs/mine", encoder="nativ")  # type: ignore[arg-type]
    bpeflow.train_bpe("a.txt", 1000, ["<s>"], monitor={"intervall": 8})  # type: ignore[arg-type]
    bpeflow.Tokenizer.train("a.txt", vocab_size=1000, special_tokens=["<s>"], tie_break="huggingface")
    bpeflow.Tokenizer.train("a.txt", vocab_size=1000, tie_break="hugging_face")  # type: ignore[arg-type]
    bpeflow.count("a.txt", chunk_size="8mb", sources=[{"paths": "b/", "weight": 3}])
    bpeflow.count("a.txt", backend="omp")  # type: ignore[call-arg]
    bpeflow.learn_merges({"low": 5}, 300, min_frequency=2)
    bpeflow.learn_merges({"low": 5}, 300, min_frequency="2")  # type: ignore[arg-type]
    tokenizer = bpeflow.Tokenizer.load("runs/mine")
    tokenizer.save("mine", "huggingface", eos="<s>", chat_template="chatml")
    tokenizer.save("mine", "huggingface", eso="<s>")  # type: ignore[call-arg]
    tokenizer.save("mine", "hugging_face")  # type: ignore[arg-type]
    tokenizer.encod("text")  # type: ignore[attr-defined]
    tokenizer("text")  # type: ignore[operator]
    tokenizer.encode_file("a.txt", "a.bin", index=True)
    tokenizer.encode_file("a.txt", "a.bin", indx=True)  # type: ignore[call-arg]
    bpeflow.Tokenizer.from_files("vocab.json", "merges.txt", cache_byte=1)  # type: ignore[call-arg]
