"""Run a function with and without hooks, and compare memory and gradients."""
