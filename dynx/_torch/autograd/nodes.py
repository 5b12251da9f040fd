"""Read the autograd graph of a backward pass as plain values: its nodes, in the order in which compiled autograd captures them.

Torch: attributes of `torch.autograd.graph.Node` (`_saved_*`, `_raw_saved_*`, `_input_metadata`, `metadata`), of the node
`AccumulateGrad` (`variable`), and of the node of a custom `torch.autograd.Function` (`_forward_cls`,
`_compiled_autograd_key`); and the schemas of operators. The order is that of `python_compiled_autograd.cpp`. No saved tensor is
unpacked, so no hook of the program runs, and no value keeps a node or a tensor alive.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import torch

from dynx._torch.autograd.forward_modules import module_of

ROOT = "torch::autograd::GraphRoot"  # the name of the node that starts each backward pass
ACCUMULATE = "torch::autograd::AccumulateGrad"
_BACKWARD = re.compile(r"Backward\d+$")
_SYMINT = re.compile(r"SymInt(?:\[\d*\])?\??\s+(\w+)")  # in the text of a schema
_MAX_TEXT = 80  # characters of a saved value
_LINE = re.compile(r'\s*File "(?P<file>[^"]*)", line (?P<line>\d+), in (?P<function>.*)')


class RawHook(NamedTuple):
    """A hook of an autograd node: its kind as compiled autograd names it, its function, and the line of its `def`."""

    kind: str
    function: str
    file: str = ""
    line: int = 0


class RawNode(NamedTuple):
    """A node of an autograd graph, as plain values.

    `values` are by name what the node saved besides tensors, such as `{"exponent": "2"}`, and what else is part of its key.
    `shapes` are by name the shapes of gradients that the node gets, and sizes that it saved: torch may make them dynamic.
    """

    name: str
    values: dict[str, str]
    shapes: dict[str, tuple[int, ...]] = {}
    hooks: tuple[RawHook, ...] = ()
    function: str = ""  # the custom Function, as "module.Class"; the graph of AOTAutograd, as "aot0"
    defined_at: tuple[str, int] | None = None  # file and line of the Function's `forward`
    parameter: int | None = None  # the id of the leaf that AccumulateGrad adds to
    # of the forward op, outermost first: file, line and function; only in anomaly mode
    stack: tuple[tuple[str, int, str], ...] = ()
    module: int | None = None  # the id of the module in whose forward pass the node was made; with `noting_modules`


def in_order(roots: Sequence[Any], targets: Sequence[Any] = ()) -> Iterator[Any]:
    """Yield the nodes that a backward pass from `roots` runs, in the order in which compiled autograd captures them.

    If there are `targets`, the nodes of the argument `inputs`, only nodes on the way to one of them run.
    """
    edges: dict[Any, list[Any]] = {}
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in edges:
            edges[node] = _next(node)
            stack += edges[node]
    if targets:
        run = _on_the_way(edges, targets)
        roots = [root for root in roots if root in run]
        edges = {node: [each for each in following if each in run] for node, following in edges.items() if node in run}
    missing = Counter(following for after in edges.values() for following in after) + Counter(roots)  # edges not yet followed
    ready: list[Any] = []
    _follow(roots, missing, ready)
    while ready:
        node = ready.pop()
        yield node
        _follow(edges[node], missing, ready)


def _on_the_way(edges: Mapping[Any, Sequence[Any]], targets: Sequence[Any]) -> set[Any]:
    """Return the nodes from which edges lead to one of `targets`, and these."""
    before: dict[Any, list[Any]] = {}
    for node, after in edges.items():
        for following in after:
            before.setdefault(following, []).append(node)
    found: set[Any] = set()
    stack = [target for target in targets if target in edges]
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += before.get(node, ())
    return found


def _next(node: Any) -> list[Any]:
    return [following for following, _ in node.next_functions if following is not None]


def _follow(nodes: Iterable[Any], missing: Counter[Any], ready: list[Any]) -> None:
    for node in nodes:
        missing[node] -= 1
        if not missing[node]:
            ready.append(node)


def read_all(roots: Sequence[Any], targets: Sequence[Any] = ()) -> list[RawNode]:
    """Return the plain values of the nodes that a backward pass runs, in the order of `in_order`."""
    found: list[RawNode] = []
    uses: Counter[str] = Counter()  # of each graph of AOTAutograd, which torch numbers
    reached_by: dict[Any, Any] = {}
    for each in in_order(roots, targets):
        for following in _next(each):
            reached_by.setdefault(following, each)
        node = read(each, reached_by.get(each))
        used = uses[node.function] if node.defined_at is None else 0
        uses[node.function] += 1
        found.append(node._replace(function=f"{node.function}_{used}") if node.function and used else node)
    return found


def read(node: Any, reached_by: Any = None) -> RawNode:
    """Return the plain values of an autograd node.

    The line and the module of an AccumulateGrad node, which autograd uses again in later passes, are those of `reached_by`, the
    first node that passes a gradient to it.
    """
    values, shapes = {}, {}
    for name, value in _saved(node):
        if "_sym_size" in name and isinstance(value, (tuple, list)):
            shapes[name.partition("_sym_size")[0]] = tuple(map(int, value))
        elif "sym_" not in name:
            values[name] = repr(_signed(value))[:_MAX_TEXT]
    values["number of inputs"] = str(len(node.next_functions))
    for index, (following, output) in enumerate(node.next_functions):
        name = following.name() if following is not None else "none: no gradient is needed"
        values[f"input {index}"] = name if not output else f"{name}, output {output}"
    for index, metadata in enumerate(node._input_metadata):
        values[f"gradient {index}"] = f"{metadata.dtype} on {metadata.device}"
        shapes[f"gradient {index}"] = tuple(map(int, metadata.shape))
    values |= {f"number of dims of {name}": str(len(shape)) for name, shape in shapes.items()}
    found = []
    for name, saved in _saved_tensors(node):
        hook = getattr(saved, "unpack_hook", None)
        if hook is not None:
            found.append(describe("unpack_hook", hook))
        elif (metadata := _metadata(node, name, saved)) is not None:
            values[f"saved tensor {name}"] = metadata
    function = getattr(node, "_forward_cls", None)
    leaf = node.variable if node.name() == ACCUMULATE else None
    aot_id = getattr(function, "_aot_id", None)
    if function is not None:
        number, *sizes = node._compiled_autograd_key()  # the sizes are those of a graph of AOTAutograd
        values["key"] = f"{number}, {len(sizes)} sizes"
        shapes["the compiled forward pass"] = tuple(map(int, sizes))
    if leaf is not None:
        values |= {"dtype": str(leaf.dtype), ".grad": "None" if leaf.grad is None else "a tensor"}
    stack = (reached_by if leaf is not None and reached_by is not None else node).metadata.get("traceback_", ())
    return RawNode(
        node.name(),
        values,
        shapes,
        (*found, *_hooks_of_leaf(leaf)),
        _name(function),
        _definition(function) if aot_id is None else None,
        id(leaf) if leaf is not None else None,
        tuple(_stack(stack)),
        id(module) if (module := module_of(stack)) is not None else None,
    )


def is_unusable(roots: Sequence[Any]) -> bool:
    """Return whether a backward pass from `roots` raises: an earlier one freed a saved tensor, or it was changed in place."""
    for node in in_order(roots):
        for name, saved in _saved_tensors(node):
            if "[" not in name and getattr(saved, "unpack_hook", None) is None:
                try:
                    getattr(node, f"_saved_{name}")
                except RuntimeError:
                    return True
    return False


def _saved(node: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of what an operator's node saved besides tensors."""
    names = dir(node) if not hasattr(node, "_forward_cls") else ()  # attributes of a custom Function belong to the program
    for name in names:
        if name.startswith("_saved_") and f"_raw{name}" not in names:
            with suppress(RuntimeError):  # the graph was freed
                yield name.removeprefix("_saved_"), getattr(node, name)


def _signed(value: Any) -> Any:
    """Return a saved number, or tuple of numbers, as the program passed it: torch returns negative ones as unsigned."""
    if isinstance(value, tuple):
        return tuple(map(_signed, value))
    return value - 2**64 if type(value) is int and value >= 2**63 else value


def _saved_tensors(node: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and the `SavedTensor` objects of the tensors that a node saved."""
    for name in dir(node):
        if name.startswith("_raw_saved_"):
            saved: Any = ()
            with suppress(RuntimeError):  # the graph was freed
                saved = getattr(node, name)
            title = name.removeprefix("_raw_saved_")
            if isinstance(saved, (list, tuple)):
                yield from ((f"{title}[{index}]", each) for index, each in enumerate(saved))
            else:
                yield title, saved


def is_symbolic(node: str, argument: str) -> bool:
    """Return whether torch may make a number that a node saved symbolic: it is a SymInt in the schema of the operator."""
    return argument in _symbolic_arguments().get(_BACKWARD.sub("", node).lower(), ())


@functools.cache
def _symbolic_arguments() -> Mapping[str, set[str]]:
    """Return by operator, such as "constantpadnd" of ConstantPadNdBackward0, the arguments that are SymInt."""
    found: dict[str, set[str]] = {}
    for schema in torch._C._jit_get_all_schemas():
        operator = schema.name.removeprefix("aten::").replace("_", "")
        found.setdefault(operator, set()).update(_SYMINT.findall(str(schema)))
    return found


def _metadata(node: Any, name: str, saved: Any) -> str | None:
    """Return what of a saved tensor is part of the key; None if it cannot be read without running a hook."""
    tensor = getattr(saved, "data", None)
    if tensor is None and "[" not in name:  # torch 2.11 has no `data` without a hook
        with suppress(RuntimeError):  # changed in place, or freed
            tensor = getattr(node, f"_saved_{name}", None)
    if not isinstance(tensor, torch.Tensor):
        return None
    return f"{tensor.dtype} on {tensor.device}{', requires grad' if tensor.requires_grad else ''}"


def _hooks_of_leaf(leaf: Any) -> Iterator[RawHook]:
    if leaf is not None:
        yield from (describe("tensor_pre_hook", hook) for hook in (leaf._backward_hooks or {}).values())
        yield from (describe("post_acc_grad_hook", hook) for hook in (leaf._post_accumulate_grad_hooks or {}).values())


def describe(kind: str, hook: Any) -> RawHook:
    """Return the name of a hook's function, and its line where it is a function of Python."""
    inner = getattr(hook, "__func__", None) or getattr(hook, "func", None) or hook
    inner = inspect.unwrap(inner) if callable(inner) else inner  # of `torch.compiler.disable`
    name = getattr(inner, "__qualname__", None) or type(inner).__qualname__
    code = getattr(inner, "__code__", None) or getattr(getattr(type(inner), "__call__", None), "__code__", None)  # noqa: B004
    return RawHook(kind, name, code.co_filename, code.co_firstlineno) if code is not None else RawHook(kind, name)


def _name(function: Any) -> str:
    """Return the name of a custom Function; that of a graph of AOTAutograd is "aot0", as in the names of its nodes."""
    if function is None:
        return ""
    aot_id = getattr(function, "_aot_id", None)
    return f"aot{aot_id}" if aot_id is not None else f"{function.__module__}.{function.__qualname__}"


def _definition(function: type | None) -> tuple[str, int] | None:
    forward = getattr(getattr(function, "forward", None), "__code__", None)
    return (forward.co_filename, forward.co_firstlineno) if forward is not None else None


def _stack(entries: Sequence[str]) -> Iterator[tuple[str, int, str]]:
    for entry in entries:
        match = _LINE.match(entry)
        if match is not None:
            yield match["file"], int(match["line"]), match["function"].partition("\n")[0]
