"""`dynx.check`: call a function eagerly and compiled, each in a copy of its world, and compare everything afterwards."""
