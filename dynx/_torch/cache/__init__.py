"""Read and change Dynamo's cache of compiled code: its entries, their guards, and the entry that a call would run.

Changes wait in `quiescence` until no other thread reads the cache. `entries` and `guard_tree` read it without a lock; `lookup`
waits while another thread changes it.
"""
