"""Tokenizer file formats."""
