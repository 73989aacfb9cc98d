"""Corpora to token files and back."""
