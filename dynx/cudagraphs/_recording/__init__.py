"""Recordings: a captured graph (`recording`), how inputs reach it (`inputs`), what it returns (`outputs`), and the `cache`."""
