"""The graphs, bytecode and guards of a compilation, to compare with and without an observer."""

from __future__ import annotations

import gc
import re

import torch


def fingerprint(function, args, observer):
    """Compile `function` after a reset, inside of the context manager `observer`; return graphs, bytecode and guards."""
    torch._dynamo.reset()
    graphs = []

    def backend(graph_module, example_inputs):
        graphs.append(graph_module.code)
        return graph_module.forward

    with observer:
        torch.compile(function, backend=backend)(*args)
    entries = torch._dynamo.eval_frame._debug_get_cache_entry_list(function.__code__)
    # torch numbers some names through the whole process
    guards = [sorted(re.sub(r"___\d+", "", line) for line in str(entry.guard_manager).splitlines()) for entry in entries]
    return graphs, [entry.code.co_code for entry in entries], guards


def alive():
    """Count the objects of torch's tracer that are alive after a reset and a garbage collection."""
    torch._dynamo.reset()
    gc.collect()
    names = ("InstructionTranslator", "InliningInstructionTranslator", "FakeTensor", "TensorVariable", "OutputGraph")
    return sum(type(alive).__name__ in names for alive in gc.get_objects())
