"""Counts to merges to a vocabulary."""
