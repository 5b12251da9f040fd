"""Work on Python source and bytecode without torch: finding statements, injecting calls, and storing what Dynamo traced.

`safe_read` reads the value of an expression without running code of the program, `statements` maps source statements to
instructions, `inject` inserts calls at those instructions, and `trail` stores the state of Dynamo's tracer before each traced
instruction.
"""
