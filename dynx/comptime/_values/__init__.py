"""Values of the traced program in a callback: variables, and arithmetic and comparisons with them."""
