"""Looking at tokenizers: why a text has its tokens, what a vocabulary has, and where two differ."""
