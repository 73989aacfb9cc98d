"""Splitting text into pre-tokens: the named patterns, custom ones, and where a document may be cut."""

from bpeflow.pretokenize.patterns import NAMED_PATTERNS, NamedPattern
from bpeflow.pretokenize.pretokenizer import Pretokenizer, load_pretokenizer
from bpeflow.pretokenize.unicode_data import unicode_version

__all__ = ["NAMED_PATTERNS", "NamedPattern", "Pretokenizer", "load_pretokenizer", "unicode_version"]
