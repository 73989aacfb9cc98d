"""The scripts that the peers' processes run, one for each subject. They do not import the rest of `benchmarks`."""
