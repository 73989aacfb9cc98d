"""Helpers without a room of their own: durable files, checksums, text, YAML, cores, memory, native libraries."""
