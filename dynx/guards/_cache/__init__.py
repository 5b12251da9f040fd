"""The cache entries of a compiled function: list, count and remove them, predict which one a call runs, explain recompiles."""
