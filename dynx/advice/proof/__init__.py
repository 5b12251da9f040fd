"""Advice updated by evidence: by fixes that were tried while the program ran, or in further runs of the program."""
