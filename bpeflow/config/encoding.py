"""`EncodeSettings`: how a corpus becomes token files."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from bpeflow.config.fields import setting
from bpeflow.config.sections import EngineSettings, Size, as_number
from bpeflow.config.settings import CorpusSettings

_files = partial(setting, group="token files")
_run = partial(setting, group="run")


class EncodeSettings(CorpusSettings):
    """How a corpus becomes token files.

    The inputs are encoded in the order in which they are named, and sources after them. A token file has each document
    once: the weights of sources are ignored, and so are their samples, unless `sampled` asks for them.
    """

    sampled: bool = setting(
        False,
        "encode only the random samples of sources that have max_bytes",
        "Otherwise they are encoded whole.",
        group="corpus",
        example=True,
    )

    dtype: Literal["auto", "uint16", "uint32"] = _files(
        "auto", "type of the ids: auto (the smallest that holds the vocabulary), uint16 or uint32", example="uint32"
    )
    format: Literal["bin", "npy", "megatron"] | None = _files(
        None,
        "format of the token files: bin (the ids alone), npy, or megatron (Megatron-LM's train.bin and train.idx)",
        unset="npy if the name ends in .npy, else bin",
        example="megatron",
    )
    index: bool = _files(False, "also write where each document starts", example=True)
    end_token: str | None = _files(
        None,
        "special token that replaces separators and ends every document; '' for none",
        "Needed if the separator is not a special token.",
        unset="the separator; the last document ends as in its file, except in format megatron",
        example="<|endoftext|>",
        metavar="TOKEN",
    )
    special_tokens_as_text: bool = _files(
        False,
        "encode special tokens in documents as ordinary text; for untrusted corpora",
        "The separator still ends documents, unless it is ''.",
        example=True,
    )
    shard_tokens: Annotated[int, Field(ge=1), BeforeValidator(as_number)] | None = _files(
        None,
        "divide into files of at most this many tokens, e.g. 100m",
        "The files are train_000000.bin and so on. Each ends where a document ends; only a document longer than that "
        "continues in the next file.",
        unset="one file",
        example="100m",
    )
    val_fraction: float = _files(
        0.0,
        "probability with which a document goes to val.bin instead, e.g. 0.005",
        "A name that does not end in the word train gets _train and _val. Where a document goes depends only on seed "
        "and its number in the corpus, and its ids are the same as without a split.",
        example=0.005,
        metavar="P",
        ge=0,
        lt=1,
        allow_inf_nan=False,
    )
    seed: int = _files(0, "seed of the random choice of validation documents", example=1, ge=0)
    overwrite: bool = _files(
        False,
        "replace existing token files",
        "Further shards of an earlier set are removed, and so are shards where an undivided file takes their place, or "
        "the reverse.",
        example=True,
    )
    resume: bool = _files(
        False,
        "resume an interrupted encoding to the same files, with the same corpus and settings",
        "It starts if there is none. A checkpoint is made every 30 seconds.",
        example=True,
    )
    num_threads: int | None = _run(
        None, "encoder threads", unset="one per core", example=4, ge=1, le=4096, flags=("--threads",)
    )
    chunk_size: Size | None = _run(
        None,
        "text per encoder and step, e.g. 8mb; determines the memory needed",
        unset="a few MB",
        example="8mb",
    )
    engine: EngineSettings = EngineSettings.model_construct()

    @model_validator(mode="after")
    def _check_effects(self) -> EncodeSettings:
        if self.seed and not self.val_fraction:
            raise ValueError("seed: has no effect without val_fraction; add val_fraction=0.005, or leave it out")
        if self.sampled and not any(source.max_bytes is not None for source in self.sources):
            raise ValueError("sampled: has no effect without a source with max_bytes; leave it out")
        return self
