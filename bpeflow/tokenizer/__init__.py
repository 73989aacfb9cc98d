"""Text to token ids and back, in memory."""
