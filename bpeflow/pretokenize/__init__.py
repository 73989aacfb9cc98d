"""Splitting text into pre-tokens: patterns, safe cuts, the reference matcher and the native scanner."""
