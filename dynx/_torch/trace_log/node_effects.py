"""Find graph nodes that may change the sizes, the dtype or requires_grad of an existing tensor.

Torch: in-place operations have names that end with an underscore, or are in-place functions of `operator`. Operations of
`nn.functional` with `inplace=True` change values only, and Dynamo breaks the graph if `out` would be resized. Operations of
other modules (higher-order operators, custom operators) may do anything.
"""

from __future__ import annotations

import operator
from typing import Any

_KNOWN = frozenset({"torch", "torch._C", "torch._C._nn", "torch.functional", "torch.nn.functional", "_operator"})
_IN_PLACE = frozenset({"setitem", "delitem", *(name for name in dir(operator) if name[0] == "i" and name[1:] in dir(operator))})


def may_change_tensors(node: Any) -> bool:
    """Return whether a graph node may change the sizes, the dtype or requires_grad of an existing tensor."""
    if node.op in ("placeholder", "get_attr"):
        return False
    if node.op == "call_method":
        name = node.target
    elif node.op == "call_function" and (getattr(node.target, "__module__", "") or "torch") in _KNOWN:
        name = getattr(node.target, "__name__", "_")
    else:
        return True
    return name.endswith("_") or (name in _IN_PLACE and node.op == "call_function")
