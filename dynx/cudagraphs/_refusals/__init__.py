"""Detection of what a replay would not repeat: random draws in Python, reads of `.grad`, and iterators that advance."""
