"""The seam: the only place that touches private torch. One file per subsystem, in the words of dynx."""
