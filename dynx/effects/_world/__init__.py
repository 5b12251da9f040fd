"""`World`: copies of everything that a function reads and changes, so that calls of the function do not change the program."""
