"""Encoding and decoding with a vocabulary, from one string to a corpus."""

from bpeflow.tokenizer.stream import StreamDecoder
from bpeflow.tokenizer.tokenizer import Tokenizer

__all__ = ["StreamDecoder", "Tokenizer"]
