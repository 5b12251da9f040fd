"""Guards of a compilation: the lines that requested them, torch's text of each, and those that fail in a recompile."""
