"""Read and change Dynamo's cache of compiled code: its entries, their guards, and the entry that a call would run.

Reading needs no lock (`entries`, `lookup`, `guard_tree`); every change waits for a safe moment in `quiescence`.
"""
