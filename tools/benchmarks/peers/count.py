"""Count pre-tokens with a peer: `count.py PEER PROCESSES PATTERN FILE...`, started by `tools/bench.py`.

The last line of the output tells, where the peer does, how many pre-tokens there are (JSON); adding them up takes some
0.02 s for 600,000 distinct ones. Each function imports
what it needs and nothing else is imported before: what a process takes to start is measured, too.
"""

from __future__ import annotations

import sys

SEPARATOR = b"<|endoftext|>"


def gigatoken(files: list[str], processes: int, pattern: str) -> tuple[int, int]:
    from gigatoken.gigatoken_rs import pretokenized_counts

    counts = pretokenized_counts(_text(files), SEPARATOR)  # [(pre-token, count), …]
    return len(counts), sum(count for _, count in counts)


def gigabpe(files: list[str], processes: int, pattern: str) -> None:
    import gigabpe

    # The bytes that occur are in the vocabulary whatever is asked for, so that 1 is a vocabulary without merges. (257
    # would be one with as many merges as there are bytes that do not occur.)
    gigabpe.train_bpe(files, 1, special_tokens=[SEPARATOR.decode()], pretokenizer="bytelevel", threads=processes)


def huggingface(files: list[str], processes: int, pattern: str) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    trainer = trainers.BpeTrainer(vocab_size=1, special_tokens=[SEPARATOR.decode()], show_progress=False)
    tokenizer.train(files, trainer)


def regex(files: list[str], processes: int, pattern: str) -> tuple[int, int]:
    from collections import Counter

    import regex

    find = regex.compile(pattern).finditer
    counts: Counter[str] = Counter()
    for document in _text(files).split(SEPARATOR):
        counts.update(match.group() for match in find(document.decode()) if match.group())
    return len(counts), sum(counts.values())


def _text(files: list[str]) -> bytes:
    """The whole text; the end of a file ends a document."""
    texts = []
    for name in files:
        with open(name, "rb") as file:
            texts.append(file.read())
    return SEPARATOR.join(texts)


def main(peer: str, processes: str, pattern: str, *files: str) -> None:
    peers = {work.__name__: work for work in (gigatoken, gigabpe, huggingface, regex)}
    result = peers[peer](list(files), int(processes), pattern)
    print('\n{"distinct": %d, "total": %d}' % result if result else "\n{}")


if __name__ == "__main__":
    main(*sys.argv[1:])
