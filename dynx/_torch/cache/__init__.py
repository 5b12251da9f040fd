"""Torch's cache of compiled code: its entries and their guards, the entry that a call would run, and changes to the cache.

Reading needs no lock (`entries`, `lookup`, `guard_tree`); every change waits for a safe moment in `quiescence`.
"""
