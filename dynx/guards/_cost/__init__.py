"""Measure what checking guards costs in each call, and which settings of torch make it cheaper."""
