"""Read the FX graphs that AOTAutograd passes to a backend."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from dynx._torch.tracing.stack import RawFrame
from dynx._trace.user_location import user_location
from dynx.records import Location

_FRAME = re.compile(r'File "(.+?)", line (\d+), in (.+)')


def placeholders(gm: GraphModule) -> list[Node]:
    return list(gm.graph.find_nodes(op="placeholder"))


def value_of(node: Node) -> Any:
    """Return the fake tensor or symbolic number of a node (`meta["val"]`); None where there is none."""
    return node.meta.get("val")


def tensors_of(node: Node) -> Iterator[torch.Tensor]:
    """Yield the fake tensors that a node returns."""
    value = value_of(node)
    for output in value if isinstance(value, (tuple, list)) else (value,):
        if isinstance(output, torch.Tensor):
            yield output


def location_of(node: Node) -> Location | None:
    """Return the line of the user's code that a node comes from, or if it has none, that of a node that uses it."""
    for candidate in (node, *node.users):
        frames = [RawFrame(file, int(line), name) for file, line, name in _FRAME.findall(candidate.stack_trace or "")]
        if frames and (location := user_location(frames)) is not None:
            return location
    return None
