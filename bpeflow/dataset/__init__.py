"""Corpora to token files and back, and the evaluation of tokenizers on corpora."""
