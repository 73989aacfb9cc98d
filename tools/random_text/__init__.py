"""Words and their frequencies for text that `make_corpus.py` generates."""
