"""Record the state of Dynamo's tracer before each instruction, as short texts that keep no object of the trace alive.

`log` writes one row per instruction, with `frame` and `value_text`; `peek` evaluates expressions on symbolic variables; `steps`
finds the innermost frame of a graph break, and `line_timer` times each line.
"""
