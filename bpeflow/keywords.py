"""The keyword arguments of the public functions, for editors, type checkers, `help` and completion in notebooks.

They are those fields of the models in `bpeflow.config` that are not parameters of their own, with the types that the
models accept. A type checker cannot derive them, and the models take time to import, so they are written out;
`tests/test_keywords.py` compares the two.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict, TypeVar, runtime_checkable

from bpeflow._util.text import BadRecordsPolicy, InputFormat, InvalidUtf8Policy, NormalizerName, UnmatchedPolicy

if TYPE_CHECKING:
    from bpeflow.vocab import Vocab

Function = TypeVar("Function", bound=Callable[..., Any])

Paths = str | Path | Sequence[str | Path]

#: A number of bytes, as ``8_000_000`` or ``"8mb"``.
Size = int | str

BackendName = Literal["auto", "omp", "c", "python"]
EngineName = Literal["local", "ray"]
TokenizerFormat = Literal["huggingface", "tiktoken"]


@runtime_checkable
class HasSpec(Protocol):
    """A tokenizer, of whichever class."""

    def to_spec(self) -> Any:
        """Return the tokenizer's content, a `TokenizerSpec`."""
        ...


class SourceKeywords(TypedDict, total=False):
    """An entry of `sources`."""

    name: str
    paths: Paths
    exclude: Paths
    weight: float
    max_bytes: Size | None
    seed: int
    format: InputFormat | None
    text_field: str | None


class TransformersKeywords(TypedDict, total=False):
    """Further parameters of `bpeflow.Tokenizer.save`, for transformers."""

    eos: str | None
    bos: str | None
    add_bos: bool
    pad: str | None
    chat_template: str | None
    max_length: int | None


class OutputKeywords(TransformersKeywords, total=False):
    """The content of `output`."""

    formats: TokenizerFormat | Sequence[TokenizerFormat]
    report: bool | None


class MonitorKeywords(TypedDict, total=False):
    """The content of `monitor`."""

    enabled: bool
    interval: float | None


class ThinRareKeywords(TypedDict):
    """The content of `thin_rare`."""

    below: int
    keep: float


class EngineKeywords(TypedDict, total=False):
    """The content of `engine`."""

    kind: EngineName
    address: str | None
    workers: int | None
    cpus_per_task: int
    task_memory: Size
    retries: int


class CorpusKeywords(TypedDict, total=False):
    """Settings of a corpus."""

    sources: SourceKeywords | Sequence[SourceKeywords]
    input_format: InputFormat
    text_field: str
    exclude: Paths
    separator: str | None
    invalid_utf8: InvalidUtf8Policy
    bad_records: BadRecordsPolicy


class CountKeywords(CorpusKeywords, total=False):
    """Further settings of `bpeflow.count`."""

    unmatched: UnmatchedPolicy
    normalizer: NormalizerName | Sequence[NormalizerName]
    num_counter: int | None
    num_merger: int | None
    chunk_size: Size
    executor: Literal["auto", "threads", "processes"]
    memory_limit: Size | None
    scratch_dir: str | Path | None
    segment_size: Size


class LearnKeywords(TypedDict, total=False):
    """Further settings of `bpeflow.learn_merges`."""

    tie_break: Literal["greatest_bytes", "smallest_ids", "huggingface"]
    min_frequency: int
    max_token_length: int | None
    thin_rare: ThinRareKeywords | None
    threads: int | None
    max_search: Literal["heap", "scan"]


class RunKeywords(CountKeywords, LearnKeywords, total=False):
    """Further settings of any training of one vocabulary."""

    pattern: str | Sequence[str]
    backend: BackendName
    init_from: str | Path | HasSpec | Vocab | None
    superwords: bool
    superword_pattern: str | Sequence[str]
    transition_size: int | None
    max_words: int | None
    colon_rule: bool
    special_tokens_first: bool
    out_dir: str | Path | None
    resume: bool
    restart: bool
    overwrite: bool
    output: OutputKeywords
    monitor: MonitorKeywords | bool
    engine: EngineKeywords | EngineName


class TrainKeywords(RunKeywords, total=False):
    """Further settings of `bpeflow.train_bpe`."""

    vocab_sizes: int | Sequence[int]
    skip_merge: bool


class TokenizerKeywords(RunKeywords, total=False):
    """Further settings of `bpeflow.Tokenizer.train`."""

    special_tokens: str | Sequence[str]


class EncodeKeywords(CorpusKeywords, total=False):
    """Further settings of `bpeflow.Tokenizer.encode_file`."""

    sampled: bool
    dtype: Literal["auto", "uint16", "uint32"]
    format: Literal["bin", "npy", "megatron"] | None
    index: bool
    end_token: str | None
    special_tokens_as_text: bool
    shard_tokens: int | None
    val_fraction: float
    seed: int
    overwrite: bool
    resume: bool
    num_threads: int | None
    chunk_size: Size | None
    engine: EngineKeywords | EngineName


# ---- signatures ----


def takes_settings(function: Function) -> Function:
    """Show each keyword of the last parameter, ``**name: Unpack[Keywords]``, in the signature of a function."""
    written = inspect.signature(function)
    *named, last = written.parameters.values()
    typed = globals()[last.annotation.removeprefix("Unpack[").removesuffix("]")]
    settings = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=..., annotation=kind.__forward_arg__)
        for name, kind in typed.__annotations__.items()
    ]
    function.__signature__ = written.replace(parameters=[*named, *settings])  # type: ignore[attr-defined]
    return function
