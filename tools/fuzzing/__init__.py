"""Fuzzing of the native code: each target compares it with the Python specification on inputs from libFuzzer."""
