"""The run folder: every file that a training run keeps, how it is published, locked and resumed."""
