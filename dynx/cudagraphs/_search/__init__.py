"""What a function uses: modules, tensors and values, found by the names in its code."""
