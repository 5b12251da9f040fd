"""Helpers that several test files share, one concept in each file."""
