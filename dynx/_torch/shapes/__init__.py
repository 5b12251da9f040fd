"""Access to torch's symbolic shapes: the symbols of a `ShapeEnv` and their names, the PGO profile of sizes, and cache keys."""
