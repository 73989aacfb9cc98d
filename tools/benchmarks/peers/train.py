"""Train with a peer: `train.py PEER PROCESSES VOCAB_SIZE PATTERN MERGES FILE...`, started by `tools/bench.py`.

PATTERN is ``gpt2`` or a regular expression; text that it does not match is dropped. MERGES is the file to write the
merges to, in the format of GPT-2's merges.txt, or ``-`` if the process is timed: then the lines are never built. Each
function imports what it needs, and nothing else is imported before, since the start of the process is measured, too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator

SEPARATOR = "<|endoftext|>"
#: GPT-2's original pattern. bpeflow's version of it gives the same pre-tokens, but it has possessive quantifiers, which
#: not every peer supports.
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
#: Characters to read at a time. More takes more memory; with much less, a document of 100 MB is copied many times over
#: while it is joined from pieces.
_BLOCK = 1 << 24

#: Each merge as a line: both parts, or the whole token if the peer does not report the parts; in printable form.
Lines = Callable[[], Iterable[str]]


def gigabpe(files: list[str], processes: int, vocab_size: int, pattern: str) -> Lines:  # noqa: ARG001
    import gigabpe

    _, merges = gigabpe.train_bpe(
        files, vocab_size, special_tokens=[SEPARATOR], pretokenizer="bytelevel", threads=processes
    )
    return lambda: (f"{left} {right}" for left, right in merges)


def gigatoken(files: list[str], processes: int, vocab_size: int, pattern: str) -> Lines:  # noqa: ARG001
    from gigatoken.gigatoken_rs import TextFileSource, train_bpe

    _, merges = train_bpe(TextFileSource([*files], SEPARATOR), vocab_size, [SEPARATOR], tie_breaking="huggingface")
    return lambda: (f"{_printable(left)} {_printable(right)}" for left, right in merges)


def rustbpe(files: list[str], processes: int, vocab_size: int, pattern: str) -> Lines:  # noqa: ARG001
    import rustbpe

    tokenizer = rustbpe.Tokenizer()
    # rustbpe has no special tokens
    tokenizer.train_from_iterator(_documents(files), vocab_size - 1, pattern=GPT2 if pattern == "gpt2" else pattern)
    return lambda: (_printable(bytes(token)) for token, rank in tokenizer.get_mergeable_ranks() if rank >= 256)


def huggingface(files: list[str], processes: int, vocab_size: int, pattern: str) -> Lines:  # noqa: ARG001
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern == "gpt2")
    if pattern != "gpt2":
        matches = pre_tokenizers.Split(Regex(pattern), behavior="removed", invert=True)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([matches, tokenizer.pre_tokenizer])
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[SEPARATOR],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_documents(files), trainer)
    return lambda: _merges_of(tokenizer.to_str())


def _merges_of(tokenizer_json: str) -> Iterator[str]:
    import json

    return (f"{left} {right}" for left, right in json.loads(tokenizer_json)["model"]["merges"])


def _documents(files: list[str]) -> Iterator[str]:
    """Yield the texts between separators. The end of a file ends a document."""
    for name in files:
        with open(name, encoding="utf-8", newline="") as file:  # noqa: PTH123 (pathlib takes 10 ms to import)
            rest = ""
            while block := file.read(_BLOCK):
                *documents, rest = (rest + block).split(SEPARATOR)
                yield from documents
            yield rest


def _printable(token: bytes) -> str:
    from bpeflow._util.byte_level import to_printable

    return to_printable(token)


def main(peer: str, processes: str, vocab_size: str, pattern: str, target: str, *files: str) -> None:
    peers = {train.__name__: train for train in (gigabpe, gigatoken, rustbpe, huggingface)}
    lines = peers[peer](list(files), int(processes), int(vocab_size), pattern)
    if target != "-":
        with open(target, "w", encoding="utf-8", newline="\n") as file:  # noqa: PTH123
            file.writelines(f"{line}\n" for line in ("#version: 0.2", *lines()))
    print("\n{}")


if __name__ == "__main__":
    main(*sys.argv[1:])
