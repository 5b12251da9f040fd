"""Recordings, each one captured graph: how inputs reach it (`inputs`), what it returns (`outputs`), their `cache`."""
