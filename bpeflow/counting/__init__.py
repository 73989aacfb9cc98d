"""Counting: chunks to pre-token counts."""
