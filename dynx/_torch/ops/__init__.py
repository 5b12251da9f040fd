"""Operators and memory: schemas, fused copies, fast checks, liveness of storages, CUDA graph primitives."""
