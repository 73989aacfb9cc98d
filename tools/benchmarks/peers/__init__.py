"""What the peers' processes run: one script for each subject. Nothing here imports the rest of `benchmarks`."""
