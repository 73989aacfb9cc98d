"""The run folder: everything that a training run keeps on disk."""
