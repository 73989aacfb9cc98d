"""Compare split patterns: one tokenizer each on the same text, measured on text that none of them saw.

python examples/compare_patterns.py train.txt held_out.txt 8000
"""

from __future__ import annotations

import argparse

import bpeflow

PATTERNS = ("gpt2", "cl100k", "o200k", "llama3", "qwen2")


def main() -> None:
    """Print bytes per token and tokens per word for each pattern."""
    parser = argparse.ArgumentParser(description="Compare split patterns.")
    parser.add_argument("corpus")
    parser.add_argument("held_out")
    parser.add_argument("vocab_size", type=int)
    options = parser.parse_args()
    tokenizers = {
        pattern: bpeflow.Tokenizer.train(options.corpus, vocab_size=options.vocab_size, pattern=pattern)
        for pattern in PATTERNS
    }
    print(f"{'pattern':10}{'bytes/token':>12}{'tokens/word':>12}{'to gpt2':>9}")
    for row in bpeflow.evaluate(tokenizers, options.held_out):
        print(f"{row.tokenizer:10}{row.bytes_per_token:12.3f}{row.tokens_per_word:12.3f}{row.ratio:9.3f}")


if __name__ == "__main__":
    main()
