"""Extend GPT-2's vocabulary for another language. All its ids stay, so a model keeps its embedding rows.

Usage: `python examples/extend_gpt2.py gpt2/ corpus.txt extended/ --new_tokens 5000`

`gpt2/` has GPT-2's vocab.json and merges.txt, or is any tokenizer that bpeflow reads.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bpeflow import Tokenizer


def main() -> None:
    """Train on the other language, starting from the old tokenizer."""
    parser = argparse.ArgumentParser(description="Extend a tokenizer's vocabulary.")
    parser.add_argument("tokenizer")
    parser.add_argument("corpus")
    parser.add_argument("folder")
    parser.add_argument("--new_tokens", type=int, default=5000)
    options = parser.parse_args()
    old = Tokenizer.load(options.tokenizer)
    new = Tokenizer.train(
        options.corpus, vocab_size=len(old) + options.new_tokens, init_from=old, out_dir=options.folder, overwrite=True
    )
    assert new.vocab.tokens[: len(old)] == old.vocab.tokens
    with Path(options.corpus).open(encoding="utf-8") as file:
        text = file.read(1_000_000)
    before, after = len(old.encode(text)), len(new.encode(text))
    print(f"{len(new) - len(old):,} new tokens, ids {len(old):,} and up; the embedding matrix needs as many new rows")
    print(f"{before:,} tokens before, {after:,} after: {1 - after / before:.0%} fewer")


if __name__ == "__main__":
    main()
