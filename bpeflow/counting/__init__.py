"""Counting: pre-tokens of chunks → merged partitions → `PretokenCounts`."""
