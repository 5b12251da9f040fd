"""`dynx.compile`: torch.compile with a cache of its own for each backend, by what the backend does, and each configuration."""
