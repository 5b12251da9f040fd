"""Trace a live frame again with other settings, without running it, and without any trace in the state of torch."""
