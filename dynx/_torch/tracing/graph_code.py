"""Read the code of each graph that Dynamo passes to a backend, line by line with the user's stack.

Torch: `OutputGraph.call_user_compiler(gm, …)`, `torch.fx.Graph.python_code` and `Node.stack_trace`. `GraphModule.code` is not
read: it compiles a module that torch left uncompiled (`_LazyGraphModule`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from dynx._handle import Handle
from dynx._torch import hooks
from dynx._torch.capabilities import hook_point
from dynx._torch.tracing.render import short_names
from dynx._torch.tracing.stack import RawFrame
from dynx._torch.tracing.translator import TraceId, trace_id

_FRAME = re.compile(r'File "(.+?)", line (\d+), in (.+)')
_ASSIGNED = re.compile(r"\s*(\w+)(?::[^=]*)? = ")  # `    add: "f32[3]" = x + 1`, the name of the node


class RawCodeLine(NamedTuple):
    """One line of a graph's code, with the stack of the user's code that led to it, outermost frame first."""

    text: str
    stack: tuple[RawFrame, ...]


def watch_graphs(note: Callable[[TraceId, list[RawCodeLine]], None], report: hooks.OnError) -> Handle:
    """Call `note` with the code of each graph passed to a backend until the handle is removed; exceptions go to `report`."""

    def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        note(trace_id(), code_lines((args[1] if len(args) > 1 else kwargs["gm"]).graph, args[0].shape_env))

    return hooks.subscribe(hook_point("backend"), before, on_error=report)


def code_lines(graph: Any, shape_env: Any = None) -> list[RawCodeLine]:
    """Return the lines of a `torch.fx.Graph` as Python code, with the user's stacks; the graph is not changed.

    If the graph's `ShapeEnv` is given, long names of symbols are shortened by `short_names`.
    """
    stacks = {node.name: node.stack_trace for node in graph.nodes}
    lines = ((line, _ASSIGNED.match(line)) for line in str(graph.python_code("self").src).strip().splitlines())
    return [RawCodeLine(short_names(line, shape_env), _stack(stacks.get(name[1]) if name else None)) for line, name in lines]


def _stack(text: str | None) -> tuple[RawFrame, ...]:
    return tuple(RawFrame(file, int(line), function) for file, line, function in _FRAME.findall(text or ""))
