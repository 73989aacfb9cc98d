"""Settings: what they are, what they default to, and how YAML, flags and keyword arguments become them.

`Settings` is flat on purpose: a config file reads as a list of decisions, and every key is also a keyword argument of
`bpeflow.train_bpe`. `CountSettings` and `MergeSettings` are its two halves, which `bpeflow.count` and
`bpeflow.learn_merges` take alone.
"""

from __future__ import annotations

import difflib
import os
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from bpeflow.corpus import InvalidUtf8Policy
from bpeflow.errors import ConfigError
from bpeflow.vocab import check_special_tokens

TieBreak = Literal["greatest_bytes", "smallest_ids", "huggingface"]
StartMethod = Literal["forkserver", "spawn", "fork"]
SettingsType = TypeVar("SettingsType", bound=BaseModel)

_SIZES = frozenset({"vocab_size", "vocab_sizes"})
_SECTIONS = frozenset({"monitor", "output", "queue"})

#: Stands in `input` and `exclude` for the folder of Python's own standard library: real text that every machine has.
STDLIB_PLACEHOLDER = "{stdlib}"


def _as_tuple(value: object) -> object:
    """Let one value stand for a list of one. A set is refused: the order of special tokens is part of them."""
    if isinstance(value, set | frozenset):
        raise ValueError("a set has no order, which is needed here; give a list")
    return (value,) if isinstance(value, str | int | Path | Mapping) and not isinstance(value, bool) else value


def _as_paths(value: object) -> object:
    values = _as_tuple(value)
    if not isinstance(values, list | tuple):
        return values
    if "" in values:
        raise ValueError("an empty string is no path")
    stdlib = sysconfig.get_paths()["stdlib"]
    return tuple(os.fspath(v).replace(STDLIB_PLACEHOLDER, stdlib) if isinstance(v, str | Path) else v for v in values)


def _as_folder(value: object) -> object:
    if isinstance(value, str | Path):
        if not str(value) or "\0" in str(value):
            raise ValueError("need the name of a folder")
        return Path(value).expanduser()
    return value


NonEmpty = Annotated[str, Field(min_length=1)]
#: The names of a nested field, joined by dots.
FieldPath = Annotated[str, Field(pattern=r"^[^.]+(\.[^.]+)*$")]
Paths = Annotated[tuple[str, ...], BeforeValidator(_as_paths)]
Folder = Annotated[Path, BeforeValidator(_as_folder)]
#: What crosses the border to native code must fit there.
VocabSize = Annotated[int, Field(ge=256, lt=2**32 - 1)]
#: A number of bytes: ``8mb`` (10^6), ``8MiB`` (2^20) or a plain number.
Size = Annotated[ByteSize, Field(ge=1)]
#: With less, more time goes into files than into counting.
MemoryLimit = Annotated[ByteSize, Field(ge=16_000_000)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class QueueSettings(_Frozen):
    """The bounds of each queue. When either is reached, the stage before it waits."""

    max_items: int = Field(default=64, ge=1, description="items under way in a queue")
    max_bytes: Size = Field(default=ByteSize(256_000_000), description="bytes under way in a queue")


class MonitorSettings(_Frozen):
    """The queue monitor."""

    enabled: bool = Field(default=False, description="print queue depths and rates, and write monitor.jsonl")
    interval: float = Field(default=10.0, gt=0, le=86_400, description="seconds between two samples")


class OutputSettings(_Frozen):
    """What a run writes besides ``vocab.json``, ``merges.txt`` and ``bpeflow.json``."""

    formats: Annotated[tuple[Literal["huggingface", "tiktoken", "cs336"], ...], BeforeValidator(_as_tuple)] = Field(
        default=(), description="further formats: huggingface, tiktoken, cs336"
    )


class TokenSettings(_Frozen):
    """What both halves must know."""

    special_tokens: Annotated[tuple[NonEmpty, ...], BeforeValidator(_as_tuple)] = Field(
        default=("<|endoftext|>",), description="strings that are never split, merged or counted"
    )

    @model_validator(mode="after")
    def _check_special_tokens(self) -> TokenSettings:
        if len(set(self.special_tokens)) != len(self.special_tokens):
            raise ValueError("special_tokens: the same token is given twice")
        return self


class SourceSettings(_Frozen):
    """A part of a mixed corpus. What is not given here is as the settings of the same names say for all."""

    name: NonEmpty = Field(
        default="", description="as it is reported; by default its first path", validate_default=False
    )
    paths: Paths = Field(
        min_length=1,
        description="as input",
        validation_alias=AliasChoices("paths", "path"),
        serialization_alias="paths",
    )
    exclude: Paths = Field(default=(), description="globs of files to leave out, besides those of all")
    weight: int = Field(default=1, ge=1, le=1_000_000, description="how often each document counts")
    max_bytes: Size | None = Field(default=None, description="take a sample of documents of so many bytes at most")
    seed: int = Field(default=0, description="of the sample")
    format: Literal["auto", "text", "jsonl", "parquet"] | None = Field(default=None, description="as input_format")
    text_field: FieldPath | None = Field(default=None, description="for JSON Lines")
    text_column: FieldPath | None = Field(default=None, description="for Parquet")

    @model_validator(mode="after")
    def _name_by_path(self) -> SourceSettings:
        if not self.name:
            object.__setattr__(self, "name", self.paths[0])
        return self


class CountSettings(TokenSettings):
    """How a corpus becomes pre-token counts."""

    input: Paths = Field(
        default=(),
        description="files, folders, globs, @lists of these, - for standard input, URLs; or sources, as mappings. "
        "{stdlib} is Python's standard library",
    )
    sources: Annotated[tuple[SourceSettings, ...], BeforeValidator(_as_tuple)] = Field(
        default=(), description="parts of a mixed corpus, each with a name, paths, a weight, max_bytes"
    )
    input_format: Literal["auto", "text", "jsonl", "parquet"] = Field(
        default="auto", description="what files hold, compressed or not; by default as their names end, else text"
    )
    text_field: FieldPath = Field(default="text", description="the field of JSON Lines with the text; a.b is b in a")
    text_column: FieldPath = Field(default="text", description="the column of Parquet with the text; a.b is b in a")
    exclude: Paths = Field(default=(), description="globs of files to leave out")
    separator: NonEmpty | None = Field(
        default=None, description="what stands between documents; by default the first special token"
    )
    invalid_utf8: InvalidUtf8Policy = Field(
        default="error", description="input that is not UTF-8: error, replace or skip"
    )
    pattern: NonEmpty = Field(default="gpt2", description="gpt2, cl100k, o200k, llama3, qwen2 or a regular expression")

    scanner: Literal["auto", "native", "regex"] = Field(
        default="auto", description="what finds pre-tokens: native code for the named patterns, or the regex module"
    )
    num_counter: int | None = Field(default=None, ge=1, description="counter processes; by default one per core")
    num_merger: int = Field(default=1, ge=1, description="merger processes, each with a partition of the counts")
    chunk_size: Size = Field(default=ByteSize(8_000_000), description="bytes of text that a counter takes at a time")
    small_input: Annotated[ByteSize, Field(ge=0)] | None = Field(
        default=None,
        description="input up to this size is counted in threads instead of processes; by default 1gb natively, and "
        "4mb, in one thread, by the regex module",
    )
    memory_limit: MemoryLimit | None = Field(
        default=None,
        description="bytes that all processes together may take for counts, by default half of what is available; more "
        "go to scratch_dir. On top come the processes themselves, and the result: 16 bytes and its own for each "
        "distinct pre-token",
    )
    scratch_dir: Folder | None = Field(
        default=None,
        description="where counts go that memory_limit has no room for, until the end; by default the run folder or, "
        "without one, the system's temporary folder",
    )
    segment_size: Size = Field(
        default=ByteSize(8_000_000_000),
        description="a corpus larger than this is counted in segments of about this size, each of which is durable in "
        "the run folder when it is done, so that a run that is killed can go on there",
    )
    queue: QueueSettings = QueueSettings()
    start_method: StartMethod = Field(default="forkserver", description="how processes start")

    @model_validator(mode="before")
    @classmethod
    def _sources_apart(cls, values: Any) -> Any:
        """Take mappings among the inputs for the sources that they describe."""
        if not isinstance(values, Mapping) or "input" not in values:
            return values
        given = values["input"]
        entries = list(given) if isinstance(given, list | tuple) else [given]
        sources = [entry for entry in entries if isinstance(entry, Mapping | SourceSettings)]
        if not sources:
            return values
        others = tuple(entry for entry in entries if entry not in sources)
        return {**values, "input": others, "sources": (*values.get("sources", ()), *sources)}

    @model_validator(mode="after")
    def _check_sources(self) -> CountSettings:
        if not self.input and not self.sources:
            raise ValueError("input: is missing; name at least 1 file, folder or glob to train on")
        names = [source.name for source in self.sources]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"two sources have the name {twice[0]!r}: give each a name of its own")
        return self

    @property
    def document_separator(self) -> str | None:
        """What ends a document: `separator`, or else the first special token, or else nothing but the file's end."""
        return self.separator or next(iter(self.special_tokens), None)


class MergeSettings(TokenSettings):
    """How pre-token counts become merges."""

    vocab_size: VocabSize | None = Field(default=None, description="entries of the vocabulary: bytes, specials, merges")
    tie_break: TieBreak = Field(
        default="greatest_bytes", description="which of several pairs of the same count is merged first"
    )
    min_frequency: int = Field(default=1, ge=1, lt=2**63, description="pairs that occur less often are not merged")
    max_token_length: int | None = Field(
        default=None, ge=1, lt=2**63, description="bytes that a token may have at most"
    )
    backend: str = Field(default="auto", description="auto, omp, c or python")
    threads: int | None = Field(
        default=None, ge=1, le=4096, description="threads of the omp backend; by default one per core"
    )
    max_search: Literal["heap", "scan"] = Field(
        default="heap", description="how the best pair is found; scan is a baseline to compare with"
    )


class Settings(CountSettings, MergeSettings):
    """All settings of a training run."""

    vocab_sizes: Annotated[tuple[VocabSize, ...], BeforeValidator(_as_tuple)] = Field(
        default=(), description="several vocabularies from one run, in place of vocab_size"
    )
    init_from: Folder | None = Field(
        default=None,
        description="a tokenizer to extend, whose merges come first: a run folder, or vocab.json and merges.txt",
    )
    special_tokens_first: bool = Field(
        default=False, description="ids in HuggingFace's order: special tokens, bytes, merges"
    )
    out_dir: Folder | None = Field(default=None, description="the run folder, where everything is written")
    skip_merge: bool = Field(default=False, description="stop after the counts")
    resume: bool = Field(default=False, description="go on with the run in out_dir that was killed or failed")
    restart: bool = Field(default=False, description="begin again where there is an unfinished run, which is lost")
    output: OutputSettings = OutputSettings()
    monitor: MonitorSettings = MonitorSettings()

    @model_validator(mode="after")
    def _check_sizes(self) -> Settings:
        if self.vocab_size is not None and self.vocab_sizes:
            raise ValueError("vocab_size and vocab_sizes: give one of the two")
        if not self.skip_merge and not self.sizes:
            raise ValueError("vocab_size is missing: how many entries the vocabulary shall have, for instance 32000")
        if self.resume and self.restart:
            raise ValueError("resume and restart: give one of the two")
        if (self.resume or self.restart) and self.out_dir is None:
            raise ValueError("out_dir is missing: which run to resume or restart")
        check_vocab_sizes(self.sizes, len(self.special_tokens))
        check_special_tokens(self.special_tokens, reuse_tokens=self.tie_break == "huggingface")
        return self

    @property
    def sizes(self) -> tuple[int, ...]:
        """The vocabulary sizes that were asked for, in ascending order; none with `skip_merge` alone."""
        return tuple(sorted(set(self.vocab_sizes))) or ((self.vocab_size,) if self.vocab_size is not None else ())


#: Settings that only counting needs.
COUNT_ONLY = frozenset(CountSettings.model_fields) - frozenset(TokenSettings.model_fields)


def check_vocab_sizes(sizes: tuple[int, ...], special_tokens: int) -> None:
    """Raise `ValueError` when the bytes and the special tokens alone do not fit the smallest size."""
    if sizes and min(sizes) < 256 + special_tokens:
        raise ValueError(
            f"vocab_size {min(sizes)} is too small: 256 bytes and {special_tokens} special token(s) alone take "
            f"{256 + special_tokens}"
        )


def make_settings(model: type[SettingsType], values: Mapping[str, Any], where: str = "") -> SettingsType:
    """Validate `values` as `model`. Raises `ConfigError` with one line that names every key that is wrong."""
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        prefix = f"{where}: " if where else ""
        raise ConfigError(prefix + "; ".join(_explain(model, details) for details in error.errors())) from None


def load_settings(path: Path | None, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Read a YAML config and put `overrides`, which may have dotted keys (``monitor.interval``), over it.

    Raises `ConfigError` for a missing or malformed file and for settings that are unknown or out of range.
    """
    values: dict[str, Any] = {}
    if path is not None:
        from bpeflow.yaml_values import read_yaml  # here, for not every run has a config

        values = read_yaml(path)
    values = override(values, overrides or {})
    return make_settings(Settings, values, where=str(path) if path is not None else "")


def replace(values: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` with `others` in their place; either way to say the vocabulary's size replaces the other."""
    replaced = set(others) if _SIZES.isdisjoint(others) else {*others, *_SIZES}
    return {**{key: value for key, value in values.items() if key not in replaced}, **others}


def override(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` with `overrides`, whose keys may be dotted (``monitor.interval``), over them."""
    result = replace(values, {key: value for key, value in overrides.items() if "." not in key})
    for dotted_key, value in overrides.items():
        section, dot, key = dotted_key.partition(".")
        if not dot:
            continue
        if section not in _SECTIONS:
            raise ConfigError(f"unknown setting {dotted_key} (there are sections {', '.join(sorted(_SECTIONS))})")
        inside = result.get(section) or {}
        if isinstance(inside, Mapping):  # else it is wrong already, and is told so when it is validated
            result[section] = {**inside, key: value}
    return result


def _explain(model: type[BaseModel], details: Any) -> str:
    location = [str(part) for part in details["loc"]]
    key = ".".join(location)
    if details["type"] == "extra_forbidden":
        return f"unknown setting {key}" + _nearest(model, location)
    if details["type"] == "missing":
        return f"{key} is missing" + (": say what to train on" if key == "input" else "")
    message = details["msg"].removeprefix("Value error, ")
    return f"{key}: {message}, found {details['input']!r}" if key else message


def _nearest(model: type[BaseModel], location: list[str]) -> str:
    """Name the known key that is most like the unknown one at the end of `location`."""
    for section in location[:-1]:
        if section == "sources":
            model = SourceSettings
        if section.isdigit() or section == "sources":
            continue
        annotation = model.model_fields[section].annotation
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return ""
        model = annotation
    known = list(model.model_fields)
    close = difflib.get_close_matches(location[-1], known, n=1, cutoff=0.5)
    return f" (did you mean {'.'.join([*location[:-1], close[0]])}?)" if close else f" (there are: {', '.join(known)})"
