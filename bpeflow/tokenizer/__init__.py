"""Text to token ids and back, in memory: the tokenizer, and the encoders that it runs on."""
