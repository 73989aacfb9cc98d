"""The corpus: what there is to read, and how it becomes chunks and texts."""
