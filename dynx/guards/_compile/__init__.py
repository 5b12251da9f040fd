"""`dynx.compile`: torch.compile with separate cache entries for each backend, compared by value, and each configuration."""
