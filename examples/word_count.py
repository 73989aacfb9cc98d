"""Count words with `bpeflow.flow` alone: a pipeline of processes with bounded queues and a monitor, without any BPE.

python examples/word_count.py README.md HACKING.md
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from bpeflow.flow import Pipeline, QueueSpec, Source, Stage


def count_words(paths: Iterable[str]) -> Iterator[Counter[str]]:
    """Count the words of some files. Each worker is one call of this generator."""
    counts: Counter[str] = Counter()
    for path in paths:
        counts.update(Path(path).read_text(encoding="utf-8").split())
    yield counts


def main() -> None:
    """Print the ten most frequent words."""
    parser = argparse.ArgumentParser(description="Print the ten most frequent words of files.")
    parser.add_argument("files", nargs="+")
    files = parser.parse_args().files
    counter = Stage("counter", count_words, reads=QueueSpec("path_queue"), workers=2)
    totals: Counter[str] = Counter()
    for counts in Pipeline(Source("reader", partial(list, files)), [counter]).run():
        totals.update(counts)
    for word, count in totals.most_common(10):
        print(f"{count:8,} {word}")


if __name__ == "__main__":
    import word_count  # workers import this file as a module, not as the main script

    word_count.main()
