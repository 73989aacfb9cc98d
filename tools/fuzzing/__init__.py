"""Fuzzers of the native code: each target holds it against the Python specification on inputs that libFuzzer makes."""
