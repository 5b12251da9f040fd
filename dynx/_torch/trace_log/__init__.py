"""Record the state of Dynamo's tracer before each instruction, as short texts that keep no object of the trace alive.

The record is a `Trail` (`dynx._bytecode.trail`): one row per traced instruction, and a table in which each text has a number.
`log` adds the rows, with the state that `frame`, `progress` and `value_text` record; `peek` evaluates expressions on symbolic
variables; `steps` wraps each step, to find the frame of a graph break, and `line_timer` times each line.
"""
