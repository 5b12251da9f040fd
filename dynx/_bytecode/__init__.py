"""Python bytecode without torch: the instructions at which statements begin, calls injected there, and the log of a trace.

`statements` maps source statements to instructions, `inject` inserts calls at those instructions, and `trail` stores the state
of the tracer before each traced instruction.
"""
