"""Read and touch the tracer: what Dynamo knows at the instruction that it traces, and how to act there.

`translator` is the entry: everything else takes the `tx` (InstructionTranslator) that it finds.
"""
