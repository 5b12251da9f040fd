"""The guards of a compilation: the lines that requested them, and torch's texts of them."""
