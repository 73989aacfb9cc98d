"""The file formats of tokenizers, one module each, loading and saving together."""
