"""Operators and tensor memory: schemas, foreach operators, fast checks, liveness of storages, CUDA graph primitives."""
