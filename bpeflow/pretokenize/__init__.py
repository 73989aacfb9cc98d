"""Text to pre-tokens: the patterns, where they may be cut, the definition and the native scanner."""
