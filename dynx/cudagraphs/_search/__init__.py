"""Find the modules, tensors and other values that a function uses, by the names in its code."""
