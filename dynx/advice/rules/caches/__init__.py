"""Rules DX4xx: graphs that were compiled although a cache or a profile could have spared it."""
