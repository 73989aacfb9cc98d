"""Corpora to token files and back, the evaluation of tokenizers on corpora, and the public `Tokenizer`."""
