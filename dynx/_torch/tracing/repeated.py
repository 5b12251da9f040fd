"""Find the modules of a graph that do the same, such as the layers of a transformer: equal operations, other parameters.

Torch: `meta["nn_module_stack"]` of a `torch.fx.Node`, the modules whose `forward` Dynamo inlined, outermost first, as
sources and classes; `meta["example_value"]`, the value with its shape.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_FEWEST = 4  # modules: compiling fewer of them saves little
_INDEXED = re.compile(r"(?P<parent>.+)\.(?P<index>\d+)")
_ITEM = re.compile(r"(?:\._modules)?\[['\"]?(\w+)['\"]?\]")
_NUMBERS = ("bool", "int", "float", "SymInt", "SymFloat", "SymBool")


class RawRepeated(NamedTuple):
    """Modules of one list, such as `L['self'].layers`, that do the same in a graph, and their share of its operations."""

    parent: str  # written with dots only, by `dotted`
    indexes: tuple[int, ...]
    type_name: str
    share: float


def dotted(source: str) -> str:
    """Write the items of lists and dicts in a source with dots: `L['self'].layers.0` for `L['self']._modules['layers'][0]`."""
    local, bracket, rest = source.partition("]")
    return local + bracket + _ITEM.sub(r".\1", rest)


def repeated_modules(gm: Any) -> RawRepeated | None:
    """Return the modules of one list that do the same in the graph of a `torch.fx.GraphModule`; None if there are few.

    Of several lists, the one with the largest share of the operations is returned.
    Modules do the same if their operations, the constants in them, and the shapes, strides and dtypes of all values are equal.
    """
    nodes = [node for node in gm.graph.nodes if node.op not in ("placeholder", "get_attr", "output")]
    lists: dict[tuple[str, str], dict[int, list[Any]]] = {}
    for node in nodes:
        for source, type_ in (node.meta.get("nn_module_stack") or {}).values():
            if match := _INDEXED.fullmatch(dotted(source)):
                modules = lists.setdefault((match["parent"], _name(type_)), {})
                modules.setdefault(int(match["index"]), []).append(node)
    found = [_equal(*key, modules, len(nodes)) for key, modules in lists.items() if len(modules) >= _FEWEST]
    return max((each for each in found if len(each.indexes) >= _FEWEST), key=lambda each: each.share, default=None)


def _equal(parent: str, type_name: str, modules: Mapping[int, Sequence[Any]], whole: int) -> RawRepeated:
    """Return the largest set of modules of one list whose operations are equal."""
    groups: dict[object, list[int]] = {}
    for index, nodes in modules.items():
        groups.setdefault(_signature(nodes), []).append(index)
    largest = max(groups.values(), key=len)
    return RawRepeated(parent, tuple(largest), type_name, len(largest) * len(modules[largest[0]]) / whole)


def _signature(nodes: Sequence[Any]) -> object:
    """Return what nodes compute, independent of their names: values are numbered in the order of their first use."""
    numbers = {node: number for number, node in enumerate(nodes)}
    outside: dict[Any, str] = {}

    def text(argument: Any) -> str:
        if hasattr(argument, "meta"):  # a node
            if argument in numbers:
                return f"%{numbers[argument]}"
            return outside.setdefault(argument, f"input {len(outside)}: {_value(argument)}")
        if isinstance(argument, (tuple, list)):
            return f"[{', '.join(map(text, argument))}]"
        if isinstance(argument, dict):
            return f"{{{', '.join(f'{key}: {text(value)}' for key, value in argument.items())}}}"
        if isinstance(argument, slice):
            return f"slice{text([argument.start, argument.stop, argument.step])}"
        return repr(argument)

    return tuple((node.op, node.target, text(node.args), text(node.kwargs), _value(node)) for node in nodes)


def _name(type_: type) -> str:
    """Return the name of a module's class, with its package if it is torch's own: `torch.nn.Linear`."""
    is_own = type_.__module__.startswith("torch.nn.")
    return f"torch.nn.{type_.__qualname__}" if is_own else type_.__qualname__


def _value(node: Any) -> str:
    value = node.meta.get("example_value")
    if not hasattr(value, "stride"):
        return str(value) if type(value).__name__ in _NUMBERS else type(value).__name__
    return f"{value.dtype} {tuple(value.shape)} {tuple(value.stride())} {value.device} {value.requires_grad}"
