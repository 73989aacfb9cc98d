"""The files of a corpus, where they may be cut, and how a chunk of them becomes documents."""
