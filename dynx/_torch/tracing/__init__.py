"""Read and influence Dynamo's tracer: its symbolic frames and variables, guards and side effects, graph breaks.

Start with `translator`: `tx`, the first parameter of most functions in this package, is an `InstructionTranslator`.
"""
