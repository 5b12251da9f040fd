"""Read the graph of a capture of compiled autograd: what each FX node is, and the autograd node that it was captured from.

Torch: the targets that `AutogradCompilerInstance` puts into the graph, and `set_node_origin`, which writes
"PowBackward0 (NodeCall 2)" into the stack trace of FX nodes.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch

NodeKind = Literal["input", "hook", "accumulate_grad", "callbacks", "item", "size", "operation", "output"]
_ORIGIN = re.compile(r"\(NodeCall (\d+)\)")
_OF_AOT = re.compile(r"(aot\d+(?:_\d+)?)_\D")  # "aot0_mm"; "aot0_1_mm", if the graph of AOTAutograd is in it twice
_STATEMENT = re.compile(r" {4}(\w+)[^=\n]* = ")
_SYMBOLIC = ("sym_size", "sym_numel", "sym_stride", "sym_storage_offset")


def kind_of(node: Any) -> NodeKind:
    """Return what an FX node of a captured graph is; "item" is an item of a tuple, "operation" computes."""
    if node.op in ("placeholder", "output"):
        return "input" if node.op == "placeholder" else "output"
    name = getattr(node.target, "__name__", "")
    if node.target is operator.getitem:
        source = node.args[0]
        return "input" if source.op == "placeholder" and source.name != "hooks" else "item"
    if name in ("call_hook", "call_cpp_tensor_pre_hooks"):
        return "hook"
    if name == "call_accumulate_grad":
        return "accumulate_grad"
    if name == "_exec_final_callbacks_stub":
        return "callbacks"
    if name == "unwrap_maybe_dynamic_int":
        return "size"
    return "size" if name.startswith(_SYMBOLIC) else "operation"  # "sym_size.int"


def hook_kind(node: Any) -> str:
    """Return the kind of hook that an FX node calls, as torch names it: "tensor_pre_hook", "post_acc_grad_hook", …"""
    return str(node.kwargs.get("hook_type", "cpp_tensor_pre_hook"))


def hook_number(node: Any) -> int | None:
    """Return the index into the graph's input `hooks` of the hook that an FX node calls; None for a hook of C++."""
    hook = node.args[0]
    return hook.args[1] if isinstance(hook, torch.fx.Node) else None


def is_eager(node: Any) -> bool:
    """Return whether an FX node runs a C++ node that does not declare `is_traceable`, for which Dynamo breaks the graph."""
    return getattr(node.target, "__name__", "") == "run_non_traceable_cpp_in_eager"


def origin_of(node: Any) -> int | None:
    """Return the number of the autograd node (its NodeCall) that an FX node was captured from."""
    found = _ORIGIN.findall(node.meta.get("stack_trace") or "")
    return int(found[-1]) if found else None


def readers_of_sizes(graph_module: Any) -> Iterator[int]:
    """Yield the numbers of the autograd nodes whose operations read a size that is an input of the graph."""
    for size in (node for node in graph_module.graph.nodes if kind_of(node) == "size"):
        yield from (number for user in size.users if kind_of(user) != "size" and (number := origin_of(user)) is not None)


def compiled_graph_of(node: Any) -> str | None:
    """Return "aot0" for an FX node that is copied from the backward graph of AOTAutograd with this number."""
    match = _OF_AOT.match(node.name)
    return match[1] if match is not None else None


def commented_code(graph_module: Any, comment: Callable[[int], str]) -> str:
    """Return the code of a captured graph, with a comment above the first of the FX nodes from each autograd node."""
    # sizes and callbacks come from no autograd node, but torch writes the last one of the pass into them
    nodes = [node for node in graph_module.graph.nodes if kind_of(node) not in ("input", "size", "callbacks")]
    origins = {node.name: origin_of(node) for node in nodes}
    lines, last = [], None
    for line in str(graph_module.code).splitlines():
        match = _STATEMENT.match(line)
        origin = origins.get(match[1]) if match is not None else None
        if origin is not None and origin != last:
            lines.append(f"    # {comment(origin)}")
            last = origin
        lines.append(line)
    return "\n".join(lines) + "\n"
