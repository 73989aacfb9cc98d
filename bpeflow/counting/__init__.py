"""Counting: pre-tokens of chunks → merged partitions → `PretokenCounts`."""

#: What the workers of the counting pipeline run; see `bpeflow.flow.start_fork_server`.
WORKER_MODULES = ("bpeflow.counting.reader", "bpeflow.counting.counter", "bpeflow.counting.merger")
