"""Whether Dynamo traces a function, and whether it has done so already."""

from __future__ import annotations

from types import CodeType
from typing import Any


def why_not_traced(function: Any) -> str | None:
    """Say why Dynamo never traces the body of a function; None where it does.

    Torch: `trace_rules.lookup`, which gives the class of variable a function becomes; alike in 2.11, 2.13 and 2.15.
    """
    from torch._dynamo import trace_rules

    found = trace_rules.lookup(function)
    name = found.__name__ if found is not None else ""
    if "InGraph" in name:
        return "torch puts it into the graph as a whole"
    if "Skip" in name:
        return "torch skips it"
    return None


def is_disabled(function: Any) -> bool:
    """Tell whether `torch.compiler.disable` made this function. Torch: the mark `_torchdynamo_disable`."""
    return bool(getattr(function, "_torchdynamo_disable", False))


def is_compiled_callable(function: Any) -> bool:
    """Tell whether `torch.compile` made this function or module. Torch: the mark `_torchdynamo_orig_callable`."""
    from torch._dynamo.eval_frame import OptimizedModule

    return isinstance(function, OptimizedModule) or hasattr(function, "_torchdynamo_orig_callable")


def is_compiled(code: CodeType) -> bool:
    """Tell whether a code object has compiled code in torch's cache, which runs without being traced again.

    Torch: `eval_frame._debug_get_cache_entry_list`, alike in 2.11, 2.13 and 2.15.
    """
    from torch._dynamo.eval_frame import _debug_get_cache_entry_list

    return bool(_debug_get_cache_entry_list(code))
