"""Plans on disk: a later process that compiles the same graph does not look at it again."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from torch.fx import GraphModule

from dynx._torch.autograd.aot import graph_facts
from dynx._torch.ops.schemas import schema_of
from dynx._trace.user_location import levels_to_the_user
from dynx.cudagraphs._graph.fx import placeholders, value_of
from dynx.errors import DynxWarning
from dynx.records.cudagraphs import GraphPlan

_SAVED = "dynx cudagraph plan"


def kept_plan(folder: str, gm: GraphModule, told: tuple[object, ...], look: Callable[[], GraphPlan]) -> GraphPlan:
    """Give the plan of a graph from a folder, or look at the graph and keep it there.

    `told` is what else a plan depends on. A file that cannot be read is written anew, with a warning.
    """
    path = Path(folder) / f"{_fingerprint(gm, told)}.json"
    if path.exists():
        try:
            return _read(path, gm)
        except (OSError, ValueError, RecursionError) as error:
            _warn(f"{path} is no plan of this graph, and is written anew: {error}")
    plan = look()
    try:
        _write(path, plan)
    except OSError as error:
        _warn(f"the plan of a graph was not kept: {error}\n  name a folder that can be written to with plans=")
    return plan


def _fingerprint(gm: GraphModule, told: tuple[object, ...]) -> str:
    facts = graph_facts()
    about = torch.__version__, told, sorted(facts.static), facts.user_outputs, sorted(facts.regenerated)
    found = hashlib.sha256(repr(about).encode() + _planner())
    for line in _lines(gm):
        found.update(line.encode())
    return found.hexdigest()


@cache
def _planner() -> bytes:
    """Give what changes with the code that makes plans: names and lines in it come from all of the package."""
    files = sorted(Path(__file__).parent.parent.parent.rglob("*.py"))
    return b"".join(hashlib.sha256(each.read_bytes()).digest() for each in files)


def _lines(gm: GraphModule) -> Iterator[str]:
    """Give all of a graph that a plan is made from: operators, values, lines; those of graphs within it too."""
    for node in gm.graph.nodes:
        value = torch.utils._pytree.tree_map(_described, value_of(node))
        operators = [_operator(each) for each in (node.target, *node.args) if isinstance(each, torch._ops.OpOverload)]
        does = f"{node.op} {_name(node.target)} {operators} {node.args} {node.kwargs}"
        yield f"{node.name} {does} {value} {node.stack_trace}\n"
        inner = getattr(gm, node.target, None) if node.op == "get_attr" and isinstance(node.target, str) else None
        if isinstance(inner, GraphModule):
            yield from _lines(inner)


def _operator(operator: torch._ops.OpOverload) -> tuple[str, list[str]]:
    return str(schema_of(operator)), sorted(map(str, operator.tags))


def _name(target: Any) -> str:
    return str(getattr(target, "__qualname__", target)) if callable(target) else str(target)


def _described(value: Any) -> object:
    if not isinstance(value, torch.Tensor):
        return type(value).__name__, str(value)
    return str(value.dtype), str(value.device), tuple(map(str, value.size())), tuple(map(str, value.stride()))


def _read(path: Path, gm: GraphModule) -> GraphPlan:
    """Raises ValueError for what is no plan of the graph."""
    from dynx.records.codec import from_data

    data = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(data, dict) or set(data) != {_SAVED}:
        raise ValueError("it holds something else")
    plan = from_data(GraphPlan, data[_SAVED])
    nodes: set[str] = {each.name for each in gm.graph.nodes}
    asked = {name for piece in plan.pieces for name in (*piece.inputs, *piece.outputs, *piece.nodes)}
    outputs = len(gm.graph.output_node().args[0])
    passed = all(0 <= to < outputs and 0 <= index < len(plan.inputs) for to, index in plan.passed)
    if [each.node for each in plan.inputs] != [each.name for each in placeholders(gm)] or not asked <= nodes or not passed:
        raise ValueError("its nodes are others")
    return plan


def _write(path: Path, plan: GraphPlan) -> None:
    """Write all of it or nothing, since other processes may do the same."""
    from dynx.records.codec import to_data

    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{uuid4()}.draft")
    try:
        draft.write_text(json.dumps({_SAVED: to_data(plan)}), encoding="utf-8")
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def _warn(text: str) -> None:
    warnings.warn(text, DynxWarning, stacklevel=levels_to_the_user())
