"""Looking at tokenizers and runs: why these tokens, figures of a vocabulary, differences, the page about a run."""
