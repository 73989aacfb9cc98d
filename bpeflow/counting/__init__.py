"""Chunks to pre-token counts: counters, mergers and the reducer; shards, segments and their sums."""
