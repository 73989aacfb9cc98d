"""The command line: commands, their flags, and what they print."""
