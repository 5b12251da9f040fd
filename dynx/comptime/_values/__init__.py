"""Values of the traced program in a comptime callback: variables, and arithmetic and comparisons with them."""
