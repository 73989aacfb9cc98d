"""Count or encode with a pattern: `patterns.py WORK THREADS PATTERN FILE...`, started by `tools/bench.py`.

WORK is count or encode. The last line of the output is JSON: the seconds of the work and the bytes of text. The files
are read, the pattern is compiled, and a tokenizer is trained beforehand.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

#: Bytes of text from which a tokenizer is trained, and its size. With few entries a word has many tokens, so encoding
#: takes longer, most of all where pre-tokens are long.
_TRAINED_ON, _VOCAB_SIZE = 20_000_000, 32_000


def main(work: str, threads: int, pattern: str, files: list[str]) -> None:
    texts = [Path(file).read_bytes() for file in files]  # which also brings them into the page cache
    start = texts[0][:_TRAINED_ON].decode(errors="ignore")
    seconds = _count(files, start, pattern, threads) if work == "count" else _encode(texts, start, pattern, threads)
    print(json.dumps({"seconds": seconds, "bytes": sum(map(len, texts))}))


def _count(files: list[str], start: str, pattern: str, threads: int) -> float:
    import bpeflow

    bpeflow.count(iter([start]), pattern=pattern, num_counter=threads)
    begin = time.perf_counter()
    bpeflow.count(files, pattern=pattern, num_counter=threads)
    return time.perf_counter() - begin


def _encode(texts: list[bytes], start: str, pattern: str, threads: int) -> float:
    import bpeflow

    # The pattern of superwords is that of a second stage, after one within words.
    options: dict[str, Any] = {"superwords": True} if pattern == "superbpe" else {"pattern": pattern}
    tokenizer = bpeflow.Tokenizer.train(iter([start]), vocab_size=_VOCAB_SIZE, **options)
    tokenizer = bpeflow.Tokenizer.from_spec(tokenizer.to_spec())  # with an empty cache
    tokenizer.encode("a b")
    begin = time.perf_counter()
    for text in texts:
        tokenizer.encode_to_numpy(text, num_threads=threads)
    return time.perf_counter() - begin


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:])
