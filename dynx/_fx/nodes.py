"""Read the nodes of FX graphs that AOTAutograd created."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from dynx._reading.user_location import user_location
from dynx._torch.shapes.symbol_facts import known_size
from dynx._torch.tracing.stack import RawFrame
from dynx.records import Location

_FRAME = re.compile(r'File "(.+?)", line (\d+), in (.+)')
_STEP = re.compile(r"\['([^']+)'\]|\.?([^.\[]+)|\[(\d+)\]")  # of a path such as L['self']._modules['layers'][0]


def placeholders(gm: GraphModule) -> list[Node]:
    return list(gm.graph.find_nodes(op="placeholder"))


def value_of(node: Node) -> Any:
    """Return the fake tensor or symbolic number of a node (`meta["val"]`); None if it has none."""
    return node.meta.get("val")


def tensors_of(node: Node) -> Iterator[torch.Tensor]:
    """Yield the fake tensors that a node returns."""
    value = value_of(node)
    for output in value if isinstance(value, (tuple, list)) else (value,):
        if isinstance(output, torch.Tensor):
            yield output


def nbytes(tensor: torch.Tensor) -> int:
    """Return the size of a fake tensor in bytes; a dynamic size counts with its hint, the value in the call being compiled."""
    return known_size(tensor.numel()) * tensor.element_size()


def location_of(node: Node) -> Location | None:
    """Return the line of the user's code that a node comes from; if it has none, the line of a node that uses it."""
    for candidate in (node, *node.users):
        frames = [RawFrame(file, int(line), name) for file, line, name in _FRAME.findall(candidate.stack_trace or "")]
        if frames and (location := user_location(frames)) is not None:
            return location
    return None


def module_of(node: Node) -> str | None:
    """Return the path and class of the innermost module that a node comes from, as `"layers.0.mlp: MLP"`; None if it has none.

    Torch: `meta["nn_module_stack"]`, with paths such as `L['self']._modules['layers']._modules['0']`.
    """
    stack = node.meta.get("nn_module_stack") or {}
    for path, cls in reversed(list(stack.values())):
        steps = ["".join(step) for step in _STEP.findall(str(path))]
        names = [step for step in steps if step not in ("L", "self", "_modules")]
        names = names[1:] if names[:1] == ["fn"] else names  # the module itself, as wrappers of torch name it
        name = cls.__name__ if isinstance(cls, type) else str(cls).rpartition(".")[2]
        return f"{'.'.join(names)}: {name}" if names else name
    return None
