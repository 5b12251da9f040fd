"""The cache entries of a compiled function: list them, count their hits, remove them, and predict which entry a call runs."""
