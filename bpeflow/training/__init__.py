"""A training run: counts to merges to a vocabulary. `train` is the one place that knows the whole sequence."""
