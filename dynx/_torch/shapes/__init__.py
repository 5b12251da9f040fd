"""Symbolic shapes: symbol names, what a `ShapeEnv` knows of each symbol, dynamic sizes in torch's profile (PGO), cache keys."""
