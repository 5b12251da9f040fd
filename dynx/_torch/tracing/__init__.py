"""Read and influence Dynamo's tracer: its symbolic frames and variables, guards and side effects, graph breaks.

`translator` is the module to start with: the functions of the others take a `tx` (InstructionTranslator) as it does.
"""
