"""Work on Python source and bytecode without torch: finding statements, injecting calls, and storing what Dynamo traced.

`statements` maps source statements to instructions, `inject` inserts calls at those instructions, and `trail` stores the state
of Dynamo's tracer before each traced instruction.
"""
