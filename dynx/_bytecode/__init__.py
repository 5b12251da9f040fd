"""Bytecode without torch: where statements begin, calls inserted there, and the packed trail of a trace."""
