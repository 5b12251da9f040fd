"""The commands that read saved runs; they do not need torch."""
