"""Recordings, each a captured graph with its memory: `recording`, its `inputs` and `outputs`, and the `cache`."""
