"""`dynx.compile`: torch.compile with separate cache entries for each configuration and backend (compared by value)."""
