"""What a compilation leaves behind: graphs, bytecode and guards, to compare with and without an observer."""

from __future__ import annotations

import gc
import re

import torch


def fingerprint(function, args, observer):
    """Compile from a clean start under `observer`, a context manager."""
    torch._dynamo.reset()
    graphs = []

    def backend(graph_module, example_inputs):
        graphs.append(graph_module.code)
        return graph_module.forward

    with observer:
        torch.compile(function, backend=backend)(*args)
    entries = torch._dynamo.eval_frame._debug_get_cache_entry_list(function.__code__)
    # torch numbers some names through the whole process
    guards = [sorted(re.sub(r"___\d+", "", line) for line in str(each.guard_manager).splitlines()) for each in entries]
    return graphs, [each.code.co_code for each in entries], guards


def alive():
    """Count what of a trace is still there when it is over."""
    torch._dynamo.reset()
    gc.collect()
    names = ("InstructionTranslator", "InliningInstructionTranslator", "FakeTensor", "TensorVariable", "OutputGraph")
    return sum(type(each).__name__ in names for each in gc.get_objects())
