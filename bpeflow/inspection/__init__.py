"""Looking at tokenizers: why a text has its tokens, figures of a vocabulary, differences of two."""
