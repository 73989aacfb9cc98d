"""File formats of tokenizers."""
