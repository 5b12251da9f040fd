"""A copy of everything that a function reads and changes, in which it can run without changing the program."""
