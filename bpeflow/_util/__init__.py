"""Helpers without a room of their own: durable files, text, YAML, cores and memory, libraries that may be missing."""
