"""`report.html`: training runs as a page to look at, in one file that needs nothing else."""
