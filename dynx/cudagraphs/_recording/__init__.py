"""One captured graph: how its inputs get to it (`inputs`), how its results get out (`outputs`), and the `cache` of several."""
