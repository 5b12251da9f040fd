"""Torch's cache of one function: its entries, which of them a call would run, why a call recompiles, how to remove entries."""
