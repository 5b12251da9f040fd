"""Store capture plans on disk, so that a later process that compiles the same graph need not analyze it."""

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

from dynx._fx.nodes import placeholders, value_of
from dynx._reading.user_location import user_stacklevel
from dynx._torch.autograd.aot import graph_facts
from dynx._torch.ops.schemas import schema_of
from dynx.errors import DynxWarning
from dynx.records.cudagraphs import GraphPlan

_KEY = "dynx cudagraph plan"
_PACKAGE = Path(__file__).parent.parent.parent


def load_or_store(folder: str, gm: GraphModule, depends_on: tuple[object, ...], analyze: Callable[[], GraphPlan]) -> GraphPlan:
    """Load the plan of a graph from a folder, or analyze the graph and store its plan there.

    A file that does not contain a plan of the graph is overwritten, with a warning.

    Args:
        folder: Folder in which plans are stored.
        gm: The graph.
        depends_on: What the plan depends on besides the graph.
        analyze: Returns the plan of the graph.
    """
    path = Path(folder) / f"{_fingerprint(gm, depends_on)}.json"
    if path.exists():
        try:
            return _read(path, gm)
        except (OSError, ValueError, RecursionError) as error:
            _warn(f"{path} is not a plan of this graph, and is written again: {error}")
    plan = analyze()
    try:
        _write(path, plan)
    except OSError as error:
        _warn(f"the plan of a graph was not stored: {error}\n  name a writable folder with plan_dir=")
    return plan


def _fingerprint(gm: GraphModule, depends_on: tuple[object, ...]) -> str:
    facts = graph_facts()
    about = torch.__version__, depends_on, sorted(facts.static), facts.user_outputs, sorted(facts.regenerated)
    digest = hashlib.sha256(repr(about).encode() + _source_digest())
    for line in _lines(gm):
        digest.update(line.encode())
    return digest.hexdigest()


@cache
def _source_digest() -> bytes:
    """Return a digest of dynx's source files: a plan is only valid for the version of dynx that made it."""
    files = sorted(_PACKAGE.rglob("*.py"))
    return b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)


def _lines(gm: GraphModule) -> Iterator[str]:
    """Yield a line of text for each node of a graph and its subgraphs, with everything that the plan depends on."""
    for node in gm.graph.nodes:
        value = torch.utils._pytree.tree_map(_described, value_of(node))
        operators = [_operator(target) for target in (node.target, *node.args) if isinstance(target, torch._ops.OpOverload)]
        operation = f"{node.op} {_name(node.target)} {operators} {node.args} {node.kwargs}"
        yield f"{node.name} {operation} {value} {node.stack_trace}\n"
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
    """Read a plan from a file. Raises ValueError if it is not a plan of this graph."""
    from dynx.records.codec import from_data

    data = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(data, dict) or set(data) != {_KEY}:
        raise ValueError("the file does not contain a plan")
    plan = from_data(GraphPlan, data[_KEY])
    nodes: set[str] = {node.name for node in gm.graph.nodes}
    named = {name for piece in plan.pieces for name in (*piece.inputs, *piece.outputs, *piece.nodes)}
    outputs = len(gm.graph.output_node().args[0])
    is_in_range = all(0 <= output < outputs and 0 <= index < len(plan.inputs) for output, index in plan.passed)
    has_inputs = [spec.node for spec in plan.inputs] == [node.name for node in placeholders(gm)]
    if not has_inputs or not named <= nodes or not is_in_range:
        raise ValueError("the nodes in the plan are those of another graph")
    return plan


def _write(path: Path, plan: GraphPlan) -> None:
    """Write a plan to a file atomically, since other processes may write the same file."""
    from dynx.records.codec import to_data

    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{uuid4()}.draft")
    try:
        draft.write_text(json.dumps({_KEY: to_data(plan)}), encoding="utf-8")
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def _warn(text: str) -> None:
    warnings.warn(text, DynxWarning, stacklevel=user_stacklevel())
