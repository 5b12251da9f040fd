"""Guards of a compilation: find the lines of user code that requested them, and parse torch's text of each guard."""
