"""What the tracer knew before each instruction, kept as short text, so that nothing of the trace stays alive.

`log` writes one record per instruction with `frame`, `value_text` and `render`; `steps` and `line_timer` drive it.
"""
