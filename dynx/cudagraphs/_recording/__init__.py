"""Capture, cache and replay recordings: a recording is a captured graph with the memory of its inputs and outputs."""
