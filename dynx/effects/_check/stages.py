"""Find where a difference between eager and compiled code begins: the stage of compilation, then the node of the graph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from torch import nn
from torch.fx import GraphModule, Node
from torch.fx.passes.split_module import split_module

from dynx._fx.nodes import location_of, placeholders
from dynx._torch.compilation.backend_key import torch_backend
from dynx.effects._check.program import Program
from dynx.effects._check.trial import compare
from dynx.records.check import Diff
from dynx.records.location import Location

_ALL = 1 << 30  # nodes
_OF_BACKENDS = {"aot_eager": 2, "aot_eager_decomp_partition": 3, "inductor": 3}  # number of `_STAGES` that they contain


class Stage(NamedTuple):
    """A stage of compilation, and a backend that compiles up to this stage, such as "AOTAutograd" and "aot_eager"."""

    name: str
    backend: Any


# each backend adds one step to the previous backend
_STAGES = (
    Stage("Dynamo", "eager"),
    Stage("AOTAutograd", "aot_eager"),
    Stage("decompositions and partition", "aot_eager_decomp_partition"),
)


class FirstNode(NamedTuple):
    """The first node of a graph that causes a difference when it is compiled."""

    text: str
    location: Location | None


def first_stage(program: Program, backend: Any, diffs: Collection[Diff]) -> Stage:
    """Return the first stage of compilation after which one of the differences occurs."""
    name = name_of(backend)
    paths = {diff.path for diff in diffs}
    for stage in _STAGES[: _OF_BACKENDS.get(name, 1)]:
        if name == stage.backend or paths & {diff.path for diff in compare(program, stage.backend).diffs}:
            return stage
    return Stage(name, backend)


def name_of(backend: Any) -> str:
    """Return the name of a backend: its name in torch, or the name of its function or class."""
    known = backend if isinstance(backend, str) else getattr(backend, "compiler_name", None)
    return known or getattr(backend, "__name__", None) or type(backend).__qualname__


def first_node(program: Program, backend: Any, diffs: Collection[Diff]) -> FirstNode | None:
    """Return the first node that causes one of the differences when it is compiled; None if it cannot be found.

    By bisection: the first nodes are compiled, and the others run eagerly. The node cannot be found if the differences do not
    occur again, or if the backend cannot compile a part of a graph.
    """
    paths = {diff.path for diff in diffs}
    compile_graph = torch_backend(backend) if isinstance(backend, str) or not callable(backend) else backend

    def attempt(limit: int) -> tuple[bool | None, Sequence[FirstNode]]:
        prefix = _Prefix(compile_graph, limit)
        found = {diff.path for diff in compare(program, prefix).diffs}
        return (True if paths & found else None if "exception" in found else False), prefix.nodes

    differs, nodes = attempt(_ALL)
    if not differs:
        return None
    low, high = 0, len(nodes)  # no difference with `low` compiled nodes; a difference with `high`
    while high - low > 1:
        middle = (low + high) // 2
        differs, _ = attempt(middle)
        if differs is None:  # the backend cannot compile this part of a graph
            return None
        low, high = (low, middle) if differs else (middle, high)
    return nodes[high - 1]


class _Prefix:
    """A backend that compiles the first `limit` nodes, counted over all graphs, with `backend`, and runs the others eagerly."""

    def __init__(self, backend: Callable[..., Any], limit: int) -> None:
        self._backend, self._left = backend, limit
        self.nodes: list[FirstNode] = []

    def __call__(self, gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        nodes = [node for node in gm.graph.nodes if node.op.startswith("call_")]
        if self._left >= len(nodes):  # before compiling, since some compilations remove the lines
            self.nodes += [FirstNode(f"{node.name} = {_target(node)}", location_of(node)) for node in nodes]
        count = max(0, min(len(nodes), self._left))
        self._left -= count
        if count == len(nodes):
            compiled: Callable[..., Any] = self._backend(gm, inputs)
            return compiled
        return _with_prefix(gm, inputs, set(nodes[:count]), self._backend) if count else gm.forward


def _with_prefix(gm: GraphModule, inputs: Sequence[Any], first: Collection[Node], backend: Callable[..., Any]) -> Any:
    split = split_module(gm, gm, lambda node: 0 if node in first else 1, keep_original_order=True)
    by_name = dict(zip((node.name for node in placeholders(gm)), inputs, strict=True))
    call = next(node for node in split.graph.nodes if node.target == "submod_0")
    arguments = [_argument(split, node, by_name) for node in call.args]
    prefix = split.submod_0
    output = prefix.graph.output_node()
    is_single = not isinstance(output.args[0], tuple)
    if is_single:  # AOTAutograd needs graphs that return tuples
        output.args = ((output.args[0],),)
        prefix.recompile()
    split.submod_0 = _Compiled(backend(prefix, arguments), is_single=is_single)
    return split.forward


def _argument(split: GraphModule, node: Any, by_name: dict[str, Any]) -> Any:
    if not isinstance(node, Node):
        return node
    return by_name[node.name] if node.op == "placeholder" else getattr(split, str(node.target))


class _Compiled(nn.Module):
    """An nn.Module around a compiled function, so that an FX graph can call it as a submodule."""

    def __init__(self, compiled: Callable[..., Any], *, is_single: bool) -> None:
        super().__init__()
        self._compiled, self._is_single = compiled, is_single

    def forward(self, *args: Any) -> Any:
        results = self._compiled(*args)
        return results[0] if self._is_single else results


def _target(node: Node) -> str:
    name = getattr(node.target, "__name__", str(node.target))
    return f"{node.op.removeprefix('call_')} {name}"
