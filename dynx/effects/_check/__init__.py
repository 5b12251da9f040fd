"""`dynx.check`: call a function eagerly and compiled, and compare everything that the calls returned and changed.

Each call uses a copy of its arguments and of all variables that the function reads or changes.
"""
