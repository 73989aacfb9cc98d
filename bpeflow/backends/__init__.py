"""Backends, which learn merges: the contract, the implementations and the registry."""
