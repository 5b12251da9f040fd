"""The state of the tracer before each instruction, recorded as short texts, so that nothing of the trace stays alive.

`log` writes one row per instruction, with `frame` and `value_text`; `peek` evaluates expressions on symbolic variables; `steps`
finds the innermost frame of a graph break, and `line_timer` times each line.
"""
