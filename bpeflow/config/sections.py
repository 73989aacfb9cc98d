"""Types that accept what users write, and sections: settings that belong together, under one key."""

from __future__ import annotations

import math
import os
import re
import sysconfig
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, ByteSize, Field, model_validator

from bpeflow._util.delimiters import special_bytes
from bpeflow._util.text import short_repr
from bpeflow.config.fields import Frozen, Section, setting
from bpeflow.errors import InputTypeError

#: Placeholder in `input` and `exclude` for the folder of Python's standard library: real text on every machine.
STDLIB_PLACEHOLDER = "{stdlib}"


def as_tuple(value: object) -> object:
    """Accept one value in place of a list. A set is refused, as the order of special tokens matters."""
    if isinstance(value, set | frozenset):
        raise ValueError("a set has no order, which is needed here; give a list")
    return (value,) if isinstance(value, str | int | Path | Mapping) and not isinstance(value, bool) else value


#: What separates special tokens that were written as one string.
_BETWEEN_TOKENS = r"(?<=[>\]])[\s,;]+(?=[<\[])"


def as_special_tokens(value: object) -> object:
    """Accept one token in place of a list, and None for no token.

    Refuse anything but a token, and a list in a string: ``<|a|>, <|b|>`` is never meant as one token.
    """
    tokens = () if value is None else as_tuple(value)
    for token in tokens if isinstance(tokens, list | tuple) else ():
        try:
            special_bytes(token)
        except InputTypeError as error:
            raise ValueError(str(error)) from None
        parts = re.split(_BETWEEN_TOKENS, token)
        if len(parts) > 1:
            apart = " and ".join(map(short_repr, parts))
            raise ValueError(f"{short_repr(token)} looks like several tokens: give each by itself, as {apart}")
    return tokens


def as_pattern(value: object) -> object:
    """Accept a list of patterns, and one in a list."""
    steps = value if isinstance(value, list | tuple) else [value]
    if not steps or not all(isinstance(step, str) and step for step in steps):
        raise ValueError("need a name, a regular expression, or a list of them")
    return tuple(steps) if len(steps) > 1 else steps[0]


def _as_paths(value: object) -> object:
    values = as_tuple(value)
    if not isinstance(values, list | tuple):
        return values
    if "" in values:
        raise ValueError("an empty string is not a path")
    stdlib = sysconfig.get_paths()["stdlib"]
    return tuple(os.fspath(v).replace(STDLIB_PLACEHOLDER, stdlib) if isinstance(v, str | Path) else v for v in values)


def _as_folder(value: object) -> Path:
    if not isinstance(value, str | Path) or not str(value) or "\0" in str(value):
        raise ValueError("need the name of a file or a folder")
    return Path(value).expanduser()


def as_number(value: object) -> object:
    """Return strings such as ``32k`` as numbers, and other values as they are. Raises `ValueError`."""
    if not isinstance(value, str | bool):
        return value
    if match := re.fullmatch(r"(-?[0-9]{1,15})([km]?)", str(value).strip().replace("_", "").lower()):
        return int(match[1]) * {"": 1, "k": 1_000, "m": 1_000_000}[match[2]]
    raise ValueError("need a whole number such as 32000, 32k or 1m")


def _as_weight(weight: float) -> float:
    """Return a whole number as `int`. Refuse numbers with more than three decimals."""
    exact = Fraction(str(weight))
    if 1000 % exact.denominator:
        raise ValueError("need a number with at most three decimals, such as 3, 0.5 or 0.125")
    return int(exact) if exact.denominator == 1 else weight


def whole_weights(weights: Iterable[float]) -> tuple[list[int], int]:
    """Return weights over their least common denominator, and that denominator.

    A weight is what its decimals say, so this is exact.

    >>> whole_weights([1, 0.5, 0.2])
    ([10, 5, 2], 10)
    """
    exact = [Fraction(str(weight)) for weight in weights]
    unit = math.lcm(*(weight.denominator for weight in exact))
    return [int(weight * unit) for weight in exact], unit


#: How many times each document counts, exactly: thousandths at the least.
Weight = Annotated[float, Field(ge=0.001, le=1_000_000, allow_inf_nan=False), AfterValidator(_as_weight)]

NonEmpty = Annotated[str, Field(min_length=1)]

#: The names of a nested field, joined by dots.
FieldPath = Annotated[str, Field(pattern=r"^[^.]+(\.[^.]+)*$")]
Paths = Annotated[tuple[str, ...], BeforeValidator(_as_paths)]
Folder = Annotated[Path, BeforeValidator(_as_folder)]

#: Within the range of ids in native code. ``32k`` is 32,000, and ``1m`` a million.
VocabSize = Annotated[int, Field(ge=256, lt=2**32 - 1), BeforeValidator(as_number)]

#: A number of bytes: ``8mb`` (10^6), ``8MiB`` (2^20) or a plain number.
Size = Annotated[ByteSize, Field(ge=1)]


#: With less memory, files would take more time than counting.
MemoryLimit = Annotated[ByteSize, Field(ge=16_000_000)]


_pipeline = partial(setting, group="pipeline")
_run = partial(setting, group="run")


class MonitorSettings(Section):
    """The queue monitor."""

    main = "enabled"

    enabled: bool = _pipeline(
        False,
        "print queue depths and rates at an interval, and write monitor.jsonl",
        example=True,
        flags=("--do_monitor",),
    )
    interval: float | None = _pipeline(
        None,
        "seconds between two samples of the monitor",
        unset="2 in the table on a terminal, otherwise 10",
        example=5,
        gt=0,
        le=86_400,
    )


class EngineSettings(Section):
    """The machines that count. All settings but `kind` apply only to a cluster."""

    main = "kind"

    kind: Literal["local", "ray"] = _pipeline(
        "local",
        "where the work runs: local (processes and threads of this machine) or ray (tasks on a cluster)",
        "The result is the same. With ray, out_dir and the input are on storage that all nodes see under the same "
        "path.",
        example="ray",
        flags=("--engine",),
    )
    address: NonEmpty | None = _pipeline(
        None,
        "address of the Ray cluster, host:port; local starts a cluster on this machine",
        unset="the cluster that this machine belongs to, else a new one on this machine",
        example="10.0.0.1:6379",
        flags=("--engine_address",),
        metavar="ADDRESS",
    )
    workers: int | None = _pipeline(
        None, "tasks at the same time", unset="as many as the cluster has cores for", example=64, ge=1
    )
    cpus_per_task: int = _pipeline(
        1, "threads of a task", "More of them need less memory than as many tasks.", example=4, ge=1, le=1024
    )
    task_memory: MemoryLimit = _pipeline(
        ByteSize(2_000_000_000),
        "memory for the counts of a task, as memory_limit is for this machine; the rest is spilled",
        example="4gb",
    )
    retries: int = _pipeline(
        3,
        "how many times a task is repeated whose worker or node died",
        "Errors of the input end the run at once.",
        example=5,
        ge=0,
        le=1000,
    )


class TransformersSettings(Frozen):
    """What transformers knows of a tokenizer besides its ids."""

    eos: NonEmpty | None = _run(
        None,
        "special token that ends a text in transformers",
        unset="the one that ends documents: <|endoftext|>, <|end_of_text|>, </s>, <eos>, or the first that can",
        example="<|im_end|>",
        metavar="TOKEN",
    )
    bos: NonEmpty | None = _run(
        None,
        "special token that begins a text in transformers; none is added without add_bos",
        unset="<|begin_of_text|> or <s>, if there is one",
        example="<s>",
        metavar="TOKEN",
    )
    add_bos: bool = _run(
        False, "let transformers add bos before each text; otherwise it gives the same ids as bpeflow", example=True
    )
    pad: NonEmpty | None = _run(
        None,
        "special token that pads texts in transformers",
        unset="<|pad|>, <pad> or [PAD], if there is one",
        example="<|pad|>",
        metavar="TOKEN",
    )
    chat_template: NonEmpty | None = _run(
        None,
        "chat template for transformers: a Jinja file, its text, or chatml, llama3 or phi3",
        unset="none",
        example="chatml",
        metavar="FILE",
    )
    max_length: Annotated[int | None, BeforeValidator(as_number)] = _run(
        None,
        "longest input of the model in tokens, for transformers; 4k is 4,000",
        unset="no limit",
        example=2048,
        ge=1,
    )

    @property
    def given(self) -> list[str]:
        """The names of the settings that differ from their defaults."""
        fields = TransformersSettings.model_fields.items()
        return [name for name, field in fields if getattr(self, name) != field.default]


class OutputSettings(Section, TransformersSettings):
    """What a run writes besides ``vocab.json``, ``merges.txt`` and ``bpeflow.json``."""

    main = "formats"

    formats: Annotated[tuple[Literal["huggingface", "tiktoken"], ...], BeforeValidator(as_tuple)] = _run(
        (), "additional formats to write: huggingface, tiktoken", example=["huggingface"]
    )
    report: bool | None = _run(
        None,
        "write report.html, a page about the run, as bpeflow report does; needs bpeflow[report]",
        "The page is in the run folder when the run is finished. Without matplotlib there is a warning instead.",
        unset="after runs of a minute or more, where matplotlib is installed",
        example=True,
    )

    @model_validator(mode="after")
    def _check_format(self) -> OutputSettings:
        if self.given and "huggingface" not in self.formats:
            raise ValueError(f"{', '.join(self.given)}: for the huggingface format only; add it to output.formats")
        return self


def _check_keep(keep: float) -> float:
    """Refuse numbers that are not one divided by a whole number, or nearly (0.33 is taken as one third)."""
    if abs(keep * round(1 / keep) - 1) > 0.02:
        raise ValueError("need one divided by a whole number, such as 0.5, 0.33 (one in 3) or 0.1")
    return keep


class ThinRare(Frozen):
    """Which pre-tokens are rare, and how many of them are kept."""

    below: int = setting(..., "the count that is no longer rare", unset="required", example=5, ge=1, lt=2**63)
    keep: Annotated[float, AfterValidator(_check_keep)] = setting(
        ..., "the share that is kept", unset="required", example=0.1, ge=1e-9, le=1
    )

    @property
    def one_in(self) -> int:
        """The number of pre-tokens of which one is kept, with its count times this number."""
        return round(1 / self.keep)


def as_thin_rare(value: object) -> object:
    """Accept ``below=5,keep=0.1``, the form of a flag."""
    if not isinstance(value, str):
        return value
    pairs = [part.partition("=") for part in value.split(",")]
    if len(pairs) != 2 or not all(equals for _, equals, _ in pairs):
        raise ValueError("need below=N,keep=FRACTION, such as below=5,keep=0.1")
    return {key.strip(): number.strip() for key, _, number in pairs}
