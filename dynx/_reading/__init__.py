"""What a function reads: the names in its code, and the variables, classes and modules that they lead to."""
