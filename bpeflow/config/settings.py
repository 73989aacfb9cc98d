"""Settings: frozen models; the only description of each setting.

`Settings` is flat on purpose: a config reads as a list of decisions, and every key is also a keyword argument of
`bpeflow.train_bpe`. Its two halves are `CountSettings`, for `bpeflow.count`, and `MergeSettings`, for
`bpeflow.learn_merges`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BeforeValidator, ByteSize, model_validator

from bpeflow._util.delimiters import END_OF_DOCUMENT, end_of_document
from bpeflow._util.text import (
    BadRecordsPolicy,
    InputFormat,
    InvalidUtf8Policy,
    NormalizerName,
    Pattern,
    UnmatchedPolicy,
    close_match,
    format_count,
    short_repr,
)
from bpeflow.config.fields import Frozen, setting
from bpeflow.config.sections import (
    EngineSettings,
    FieldPath,
    Folder,
    MemoryLimit,
    MonitorSettings,
    NonEmpty,
    OutputSettings,
    Paths,
    Size,
    ThinRare,
    VocabSize,
    Weight,
    as_pattern,
    as_special_tokens,
    as_thin_rare,
    as_tuple,
    whole_weights,
)
from bpeflow.errors import ConfigError

TieBreak = Literal["greatest_bytes", "smallest_ids", "huggingface"]

#: The greatest count.
_GREATEST = 2**63 - 1

#: The name of the source that `input` describes.
UNNAMED_SOURCE = "input"

_corpus = partial(setting, group="corpus")
_pretokens = partial(setting, group="pre-tokens")
_pipeline = partial(setting, group="pipeline")
_learning = partial(setting, group="learning")
_run = partial(setting, group="run")


class TokenSettings(Frozen):
    """Settings that counting and learning share."""

    special_tokens: Annotated[tuple[NonEmpty, ...], BeforeValidator(as_special_tokens)] = _pretokens(
        END_OF_DOCUMENT, "strings that are never split, merged or counted", example=["<|endoftext|>", "<|pad|>"]
    )

    @model_validator(mode="after")
    def _check_special_tokens(self) -> TokenSettings:
        if twice := [token for token, count in Counter(self.special_tokens).items() if count > 1]:
            raise ValueError(f"special_tokens: {short_repr(twice[0])} is given twice")
        return self


class SourceSettings(Frozen):
    """One source of a mixed corpus. Settings omitted here are taken from the whole corpus."""

    name: NonEmpty = setting("", "name in the report", unset="the first path", example="books", validate_default=False)
    paths: Paths = setting(
        ...,
        "files, folders, globs, @lists or URLs, as for input",
        unset="required",
        example=["books/*.jsonl.zst"],
        min_length=1,
        validation_alias=AliasChoices("paths", "path"),
    )
    exclude: Paths = setting((), "further globs of files to leave out of this source", example=["*.bak"])
    weight: Weight = setting(
        1,
        "number of times each document counts, such as 3 or 0.5",
        "Weights with decimals (at most three) are counted exactly, over their least common denominator: 1 and 0.5 "
        "count as 2 and 1. min_frequency and thin_rare are still in documents.",
        example=3,
    )
    max_bytes: Size | None = setting(
        None, "size of a random sample of documents to take instead of all", unset="no sampling", example="2gb"
    )
    seed: int = setting(0, "seed of the random sample", example=7)
    format: InputFormat | None = setting(None, "input format", unset="input_format", example="jsonl")
    text_field: FieldPath | None = setting(
        None, "field or column of the text", unset="text_field of the corpus", example="content"
    )

    @model_validator(mode="before")
    @classmethod
    def _is_a_source(cls, values: Any) -> Any:
        """Refuse documents: in Python, a list of mappings without `text_field` is taken for sources."""
        if isinstance(values, Mapping) and not close_match("paths", map(str, values)):
            raise ValueError(
                "a source needs paths, the key of its files; documents in Python need text_field, the key of their text"
            )
        return values

    @model_validator(mode="after")
    def _name_by_path(self) -> SourceSettings:
        if not self.name:
            object.__setattr__(self, "name", self.paths[0])
        return self


class CorpusSettings(Frozen):
    """What there is to read, and how its documents are found."""

    input: Paths = _corpus(
        (),
        "files, folders, globs, @lists, URLs, {stdlib} for the folder of Python's library, - for standard input (not "
        "in evaluate and diff)",
        "A folder means all files in it but hidden ones and training runs, @list.txt the inputs listed in that file. "
        "gzip, bzip2, xz and zstandard are recognised by content.",
        example=["corpus/*.txt"],
        metavar="PATH",
        flags=("-i",),
    )
    sources: Annotated[tuple[SourceSettings, ...], BeforeValidator(as_tuple)] = _corpus(
        (),
        "parts of a mixed corpus that have weights, samples or formats of their own",
        "Each has paths and optionally name, exclude, weight, max_bytes, seed, format and text_field. input takes "
        "such parts, too.",
        example=[{"name": "books", "paths": "books/", "weight": 3}],
        flags=None,
    )
    input_format: InputFormat = _corpus(
        "auto", "format of the files, compressed or not: auto (by file name, else text), text, jsonl or parquet",
        example="jsonl",
    )  # fmt: skip
    text_field: FieldPath = _corpus(
        "text",
        "field of JSON Lines, or column of Parquet, that holds the text; a.b is field b of a",
        example="data.text",
        metavar="NAME",
    )
    exclude: Paths = _corpus((), "globs of files to leave out", example=["*.bak"], metavar="GLOB")
    separator: str | None = _corpus(
        None,
        "text that ends a document, besides the end of a file; '' for none",
        unset="<|endoftext|> or a similar name among the special tokens, else the first that can end a text",
        example="<|doc|>",
    )
    invalid_utf8: InvalidUtf8Policy = _corpus(
        "error", "input that is not UTF-8: error, replace (by U+FFFD) or skip (the document)", example="replace"
    )
    bad_records: BadRecordsPolicy = _corpus(
        "error",
        "JSON lines and other records without text: error or skip (and count them)",
        "A record is bad if it is not JSON, or if its text_field is missing, null or not a string.",
        example="skip",
    )

    @model_validator(mode="before")
    @classmethod
    def _sources_apart(cls, values: Any) -> Any:
        """Turn mappings in `input` into sources."""
        if not isinstance(values, Mapping) or "input" not in values:
            return values
        given = values["input"]
        entries = list(given) if isinstance(given, list | tuple) else [given]
        sources = [entry for entry in entries if isinstance(entry, Mapping | SourceSettings)]
        if not sources:
            return values
        others = tuple(entry for entry in entries if entry not in sources)
        return {**values, "input": others, "sources": (*values.get("sources", ()), *sources)}

    def _missing(self) -> list[str]:
        given = self.input or self.sources
        return [] if given else ["input is missing: name at least one file, folder or glob"]

    @model_validator(mode="after")
    def _check_sources(self) -> CorpusSettings:
        if missing := self._missing():
            raise ValueError("; ".join(missing))
        names = [source.name for source in self.sources]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"two sources have the name {twice[0]!r}: give each a different name")
        return self

    @property
    def all_sources(self) -> tuple[SourceSettings, ...]:
        """The sources of the corpus, beginning with `input`."""
        unnamed = (SourceSettings.model_construct(name=UNNAMED_SOURCE, paths=self.input),) if self.input else ()
        return (*unnamed, *self.sources)

    @property
    def whole_weights(self) -> tuple[list[int], int]:
        """The weights of `all_sources` over their common denominator, which is the count of a document of weight 1."""
        return whole_weights(source.weight for source in self.all_sources)


class CountSettings(CorpusSettings, TokenSettings):
    """How a corpus becomes pre-token counts."""

    pattern: Annotated[Pattern, BeforeValidator(as_pattern)] = _pretokens(
        "gpt2",
        "split pattern, one of gpt2, cl100k, o200k, llama3, qwen2, tekken, deepseek_v3, kimi_k2, llama4, qwen3_5, "
        "bloom, starcoder, superbpe, nanochat, a regular expression, or a list of these",
        "Each pattern in a list splits the pieces of the previous one, like a sequence of HuggingFace's Split. "
        "With unmatched: drop, each drops what it does not match.",
        example="cl100k",
    )
    unmatched: UnmatchedPolicy = _pretokens(
        "isolate",
        "text that a regular expression does not match: isolate, drop or error",
        "isolate makes a pre-token of each stretch between two matches, as HuggingFace's Split does. drop leaves such "
        "text out, as tiktoken does. error stops at the first such stretch. Of the named patterns, only deepseek_v3, "
        "bloom and superbpe do not match all text.",
        example="error",
    )
    normalizer: Annotated[tuple[NormalizerName, ...], BeforeValidator(as_tuple)] = _pretokens(
        (),
        "changes of text before it is split: nfc, nfd, nfkc, nfkd (Unicode's forms), lowercase, or several in order",
        "Special tokens are found first, and the text between them is normalized, in training and in encoding. "
        "The tiktoken format cannot store a normalizer.",
        example=["nfc"],
    )

    num_counter: int | None = _pipeline(
        None, "counters (threads or processes)", unset="one per core", example=8, ge=1, flags=("-c",)
    )
    num_merger: int | None = _pipeline(
        None,
        "mergers, each with some partitions of the counts, at most 32",
        unset="one process, or a thread per counter",
        example=2,
        flags=("-m",),
        ge=1,
    )
    chunk_size: Size = _pipeline(
        ByteSize(8_000_000),
        "bytes of text that a counter processes at a time",
        "Smaller chunks balance the load better, larger ones cost more memory.",
        example="8mb",
    )
    executor: Literal["auto", "threads", "processes"] = _pipeline(
        "auto",
        "how counters and mergers run: threads, processes, or auto (the faster one for the input)",
        "auto uses threads for plain text, because native code counts it in parallel. It uses processes for more than "
        "4 MB of other formats, of text to normalize, or of text that only the regex module can split. Standard input "
        "and iterables are always counted in threads.",
        example="processes",
    )
    memory_limit: MemoryLimit | None = _pipeline(
        None,
        "memory for counts, over all processes; the rest is spilled to scratch_dir",
        "The result does not depend on the limit, which is at least 16mb. The processes (about 30 MB each) and the "
        "final counts (for each distinct pre-token, its bytes and 16 more) come on top. Text that cannot be divided, "
        "such as an endless word, may take a sixteenth of the limit, or 64 MB.",
        unset="half of the available memory",
        example="4gb",
    )
    scratch_dir: Folder | None = _pipeline(
        None,
        "folder for spilled counts",
        unset="the run folder, else the system's temporary folder",
        example="/scratch",
    )
    segment_size: Size = _pipeline(
        ByteSize(8_000_000_000),
        "size of the segments in which a larger corpus is counted, so that an interrupted run can resume",
        "Smaller segments lose less work; each costs about half a second.",
        example="8gb",
    )

    @property
    def document_separator(self) -> str | None:
        """The text that ends a document: `separator`, else a special token, else None (only a file's end)."""
        return end_of_document(self.special_tokens) if self.separator is None else self.separator or None


class MergeSettings(TokenSettings):
    """How pre-token counts become merges."""

    vocab_size: VocabSize | None = _learning(
        None,
        "entries of the vocabulary: 256 bytes, special tokens, merges; 32k is 32,000",
        unset="required",
        example=32000,
    )
    tie_break: TieBreak = _learning(
        "greatest_bytes",
        "rule for pairs with the same count: greatest_bytes, smallest_ids or huggingface",
        "greatest_bytes merges the greater pair of byte strings (Stanford CS336), smallest_ids the smaller pair of ids "
        "(rustbpe), huggingface the smaller pair of its own ids. In the last mode, a merge whose bytes "
        "are a token already gets the id of that token.",
        example="huggingface",
    )
    min_frequency: int = _learning(1, "pairs that occur less often are not merged", example=2, ge=1, lt=2**63)
    max_token_length: int | None = _learning(
        16384,
        "upper bound on the length of a token, in bytes",
        "Web text is full of long runs of spaces and dashes; 128 keeps them from taking ids. Without a limit (null), a "
        "damaged file of a single repeated letter yields tokens of megabytes.",
        example=128,
        ge=1,
        lt=2**63,
    )
    thin_rare: Annotated[ThinRare | None, BeforeValidator(as_thin_rare)] = _learning(
        None,
        "to save memory, keep only a share (keep) of the rare pre-tokens (counts under below), with scaled-up counts",
        "keep: 0.1 keeps one in ten, with ten times its count. A hash of the pre-token decides, so merges depend only "
        "on the counts and this setting. Saved counts stay exact.",
        unset="none",
        example={"below": 5, "keep": 0.1},
        metavar="below=N,keep=FRACTION",
    )
    backend: str = _learning(
        "auto", "merge backend: auto (the fastest available), omp, c or python", example="omp", metavar="NAME"
    )
    threads: int | None = _learning(None, "threads of the omp backend", unset="one per core", example=4, ge=1, le=4096)
    max_search: Literal["heap", "scan"] = _learning(
        "heap", "how the best pair is found: heap, or scan, a slow baseline for comparison", example="scan"
    )


class Settings(CountSettings, MergeSettings):
    """All settings of a training run."""

    vocab_sizes: Annotated[tuple[VocabSize, ...], BeforeValidator(as_tuple)] = _learning(
        (), "several vocabulary sizes from one run, instead of vocab_size", example=[8000, 16000, 32000]
    )
    init_from: Folder | None = _learning(
        None,
        "tokenizer to extend: a file or a folder in any format, or a published name",
        "Its ids stay as they are, and its pattern and special tokens are used. After its greatest id come the "
        "special_tokens that it lacks, then new tokens in the order of learning. vocab_size counts all ids.",
        unset="none",
        example="runs/mine",
        metavar="PATH",
    )
    superwords: bool = _learning(
        False,
        "learn tokens of several words (SuperBPE) once the vocabulary has transition_size entries",
        "The corpus is read twice. The tokenizer splits text by superword_pattern.",
        example=True,
    )
    superword_pattern: Annotated[Pattern, BeforeValidator(as_pattern)] = _learning(
        "superbpe",
        "split pattern of the second stage and of the tokenizer: a name, a regular expression, or a list",
        "Text that it does not match is isolated.",
        example="superbpe",
    )
    transition_size: VocabSize | None = _learning(
        None,
        "number of entries at which learning superwords begins",
        "Smaller vocab_sizes have no superwords, and split text by pattern. With init_from it is the tokenizer's size.",
        unset="three quarters of vocab_size",
        example=24000,
    )
    max_words: int | None = _learning(
        4,
        "upper bound on the words of a superword, which white space separates",
        "null sets no limit.",
        example=3,
        ge=1,
        lt=2**63,
    )
    colon_rule: bool = _learning(
        True,
        "no superword contains a colon and then a space, as in the published tokenizers",
        example=False,
        metavar="true|false",
    )
    special_tokens_first: bool = _learning(
        False, "number special tokens before the bytes, as HuggingFace does; not with init_from", example=True
    )
    out_dir: Folder | None = _run(
        None, "run folder, where everything is written", unset="none", example="runs/mine", flags=("-o",)
    )
    skip_merge: bool = _run(False, "stop after counting", example=True)
    resume: bool = _run(
        False, "resume an interrupted run in out_dir; without input, with its own settings", example=True
    )
    restart: bool = _run(
        False, "discard an unfinished run in out_dir and start over; a finished one needs overwrite", example=True
    )
    overwrite: bool = _run(
        False,
        "replace a finished run or another tokenizer in out_dir, once the new one is complete",
        example=True,
    )
    output: OutputSettings = OutputSettings.model_construct()
    monitor: MonitorSettings = MonitorSettings.model_construct()
    engine: EngineSettings = EngineSettings.model_construct()

    def _missing(self) -> list[str]:
        needed = not self.skip_merge and not self.sizes
        return super()._missing() + ["vocab_size is missing: the number of entries, for instance 32000"] * needed

    @model_validator(mode="after")
    def _check_sizes(self) -> Settings:
        if self.vocab_size is not None and self.vocab_sizes:
            raise ValueError("vocab_size and vocab_sizes are both given: give one of the two")
        if self.resume and self.restart:
            raise ValueError("resume and restart: give one of the two")
        if (self.resume or self.restart) and self.out_dir is None:
            raise ValueError("out_dir is missing: which run to resume or restart")
        check_vocab_sizes(self.sizes, len(self.special_tokens))
        return self

    @model_validator(mode="after")
    def _check_superwords(self) -> Settings:
        if self.init_from is not None and self.transition_size is not None:
            raise ValueError("transition_size: with init_from, superwords begin at that tokenizer's size: leave it out")
        if not self.superwords:
            if self.init_from is None:  # a tokenizer to extend may have superwords
                self.check_without_superwords()
            return self
        if self.skip_merge:
            raise ValueError("skip_merge and superwords: give one of the two, as superwords are learned after merges")
        if self.init_from is not None:
            return self
        least = 256 + len(self.special_tokens)
        if not least <= self.transition < self.sizes[-1]:
            raise ValueError(
                f"transition_size: {self.transition:,} is not between {least:,}, the bytes and special tokens, and the "
                f"largest vocabulary, {self.sizes[-1]:,}: give a larger vocab_size, or another transition_size "
                "(smaller vocabularies, without superwords, are learned from the counts in first_stage)"
            )
        return self

    def check_without_superwords(self) -> None:
        """Raise `ConfigError` for a setting that only superwords need."""
        for name in ("superword_pattern", "transition_size", "max_words", "colon_rule"):
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ConfigError(f"{name}: has no effect without superwords; add superwords=True")

    @property
    def transition(self) -> int:
        """The number of entries at which superwords begin: `transition_size`, or three quarters of the largest size."""
        default = max(self.sizes[-1] * 3 // 4, 256 + len(self.special_tokens))
        return default if self.transition_size is None else self.transition_size

    @property
    def sizes(self) -> tuple[int, ...]:
        """The vocabulary sizes that were asked for, in ascending order; none with `skip_merge` alone."""
        return tuple(sorted(set(self.vocab_sizes))) or ((self.vocab_size,) if self.vocab_size is not None else ())

    def for_learning(self) -> MergeSettings:
        """Return the settings for learning the largest vocabulary, with thresholds in the unit of the counts."""
        (_, unit), thin_rare = self.whole_weights, self.thin_rare
        return self.model_copy(
            update={
                "vocab_size": self.sizes[-1],
                "min_frequency": min(self.min_frequency * unit, _GREATEST),
                "thin_rare": thin_rare
                and thin_rare.model_copy(update={"below": min(thin_rare.below * unit, _GREATEST)}),
            }
        )


#: Settings that only counting needs.
COUNT_ONLY = frozenset(CountSettings.model_fields) - frozenset(TokenSettings.model_fields)


def check_vocab_sizes(sizes: tuple[int, ...], special_tokens: int) -> None:
    """Raise `ValueError` when the bytes and the special tokens alone do not fit the smallest size."""
    if sizes and min(sizes) < 256 + special_tokens:
        tokens = format_count(special_tokens, "special token")
        raise ValueError(
            f"vocab_size {min(sizes)} is too small: 256 bytes and {tokens} alone take {256 + special_tokens}"
        )
