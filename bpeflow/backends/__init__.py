"""Backends: implementations of the merge step behind one contract."""
