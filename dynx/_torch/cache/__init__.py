"""Read and change Dynamo's cache of compiled code: its entries, their guards, and the entry that a call would run.

`quiescence` makes a change as soon as no other thread reads the cache. `entries` and `guard_tree` read the cache without a
lock; `lookup` waits while another thread changes it.
"""
