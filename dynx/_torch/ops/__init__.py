"""Operators and memory: schemas, foreach operators, fast checks, liveness of storages, primitives of CUDA graphs."""
