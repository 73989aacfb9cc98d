"""Engines: the machines that count a corpus, in tasks, if not the pipeline of the calling process."""
