"""File formats of tokenizers, one module each, which load and save."""
