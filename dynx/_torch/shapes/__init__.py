"""Symbolic shapes: the allocation of symbol names, and what a `ShapeEnv` knows of each symbol."""
