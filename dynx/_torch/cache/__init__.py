"""Torch's cache of compiled code: entries and their guards, which entry a call would run, and how to change the cache safely.

Reading needs no lock (`entries`, `lookup`, `guard_tree`); every change goes through `quiescence`.
"""
