"""The stages of a training, as places for faults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """A stage: a function that does its work, the call that fails, and the settings that make a run reach it.

    ``name``: of the stage, where it has workers.
    ``yields``: the function that gives what is sent on, where it is another one.
    ``counted``: whether this run's counts are on the disk by then.
    """

    where: str
    call: int = 1
    corpus: str = "text"
    segment_size: str = "1gb"
    name: str = ""
    counted: bool = False
    yields: str = ""


WORKERS = {
    "chunk reader": Place("bpeflow.corpus.reader:CorpusReader._planned", 2, name="chunk reader"),
    "stream reader": Place("bpeflow.corpus.reader:CorpusReader._streamed", 2, "streams", name="stream reader"),
    "counter": Place(
        "bpeflow.counting.counter:ChunkCounter._count",
        2,
        name="counter",
        yields="bpeflow.counting.counter:ChunkCounter._shards",
    ),
    "merger": Place("bpeflow.counting.merger:CountMerger.sum_partition", name="merger"),
    "segment reader": Place("bpeflow.counting.shards:owned_partitions", 3, "text", "300kb", "segment reader"),
}
MAIN = {
    "segment": Place("bpeflow.counting.segments:write_segment", 2, segment_size="300kb"),
    "reducer": Place("bpeflow.counting.count:reduce_shards"),
    "writing counts": Place("bpeflow.counting.counts:PretokenCounts.dump"),
    "learning": Place("bpeflow.training.learn:_step_to_the_end", counted=True),
    "writing": Place("bpeflow.formats.gpt2:save", counted=True),
}

#: The stages of a training with superwords in four segments: each pass over the corpus makes four.
SUPERWORDS = {
    "first counting": Place("bpeflow.counting.segments:write_segment", 2),
    "first learning": Place("bpeflow.training.learn:_step_to_the_end", 1),
    "cells": Place("bpeflow.counting.segments:write_segment", 6),
    "frequent cells": Place("bpeflow.training.cut:frequent_cells"),
    "fragments": Place("bpeflow.counting.segments:write_segment", 10),
    "learning": Place("bpeflow.training.learn:_step_to_the_end", 2),
    "writing": Place("bpeflow.formats.gpt2:save", 2),
}
