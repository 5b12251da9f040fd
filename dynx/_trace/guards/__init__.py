"""The guards of a compilation: the lines that requested them, and their texts in torch."""
