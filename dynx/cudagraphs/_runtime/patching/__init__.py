"""Patching of input pointers in the kernels of a captured graph: finding, setting and verifying them."""
