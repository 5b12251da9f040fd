"""Dynamo's symbolic variables, read without changing them.

Torch: subclasses of `VariableTracker`. Their number and methods grow with every release (47, 100, 128 methods in 2.11, 2.13
and 2.15), so they are told apart by the names of their classes and read through a few attributes that have stayed.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from dynx._torch.cache.guard_failures import guard_source


def settled(variable: Any) -> Any:
    """Give what a lazy variable stands for if torch has looked at it already, else the lazy variable itself.

    Looking at it for the first time (`realize`) would add a guard.
    """
    while is_lazy(variable):
        if not variable.is_realized():
            return variable
        variable = variable.unwrap()
    return variable


def is_lazy(variable: Any) -> bool:
    """Tell whether torch has put off looking at the value; `isinstance` would make it look."""
    cls: Any = type(variable)
    return "LazyVariableTracker" in class_names(cls)


def untouched_value(variable: Any) -> Any:
    """Give the Python value behind a lazy variable that is not settled.

    Torch: `LazyCache.value`; 2.15 computes constants lazily too, and those have a cache of another class with the same name.
    """
    return variable._cache.value


def is_kind(variable: Any, *names: str) -> bool:
    """Tell whether the variable's class, or a base of it, has one of these names."""
    cls: Any = type(variable)
    return not class_names(cls).isdisjoint(names)


@cache
def class_names(cls: Any) -> frozenset[str]:
    return frozenset(base.__name__ for base in cls.__mro__)


def own(variable: Any, name: str) -> Any:
    """Read an attribute of a variable itself, None where it has none; runs no code of its class.

    `vars` would make Python give each object a dictionary of its own.
    """
    cls: Any = type(variable)
    return vars(variable).get(name) if _answers_itself(cls, name) else getattr(variable, name, None)


@cache
def _answers_itself(cls: Any, name: str) -> bool:
    """Tell whether a class has a method or property of a name, or makes up attributes as lazy variables do."""
    return hasattr(cls, "__getattr__") or any(name in vars(base) for base in cls.__mro__)


def is_dynamic(variable: Any) -> bool:
    """Tell whether a variable is a number that the graph computes with symbolically."""
    from torch.fx.experimental.symbolic_shapes import free_symbols

    return is_kind(variable, "SymNodeVariable") and bool(free_symbols(variable.sym_num))


def source_of(variable: Any) -> str | None:
    """Name where a value came from, `L['x'].size()[0]`; None for one that the traced code made."""
    source = getattr(settled(variable), "source", None)
    return None if source is None else guard_source(source)


def example_of(variable: Any) -> Any | None:
    """Give the fake tensor or symbolic number of a variable that stands in the graph, else None.

    Torch: `.proxy.node.meta["example_value"]`, the same in 2.11, 2.13 and 2.15.
    """
    variable = settled(variable)
    if is_lazy(variable):
        return None
    if is_kind(variable, "SymNodeVariable"):
        return variable.sym_num
    proxy = own(variable, "proxy")
    return None if proxy is None else proxy.node.meta.get("example_value")


def cell_content(tx: Any, variable: Any) -> Any | None:
    """Give what a closure cell holds; None when it is empty.

    Torch: `CellVariable` and `SideEffects.load_cell`. Reads torch's own tables, because `load_cell` of an empty cell raises
    what the traced code would see.
    """
    side_effects = tx.output.side_effects
    pending = side_effects.store_attr_mutations.get(variable, {}).get("cell_contents")
    if pending is not None:
        return None if is_kind(pending, "DeletedVariable") else pending
    return variable.pre_existing_contents


def items_of(variable: Any) -> list[Any] | dict[Any, Any] | None:
    """Give the variables inside a built-in container, None for anything else.

    Torch: `.items`, a list for sequences and a dict for mappings and sets. Subclasses of containers keep theirs in
    `_list_vt`, `_dict_vt`, `_set_vt` and `_tuple_vt` (2.11), in `_base_vt` (2.13) or inherit (2.15).
    """
    if not may_hold_items(variable):
        return None
    for name in ("items", "set_items"):
        held = own(variable, name)
        if isinstance(held, (list, dict)):
            return held
        if isinstance(held, tuple):
            return list(held)
    for name in ("_base_vt", "_list_vt", "_dict_vt", "_set_vt", "_tuple_vt"):
        inner = own(variable, name)
        if inner is not None:
            return items_of(inner)
    return None


def may_hold_items(variable: Any) -> bool:
    """Tell whether a variable is of a kind that `items_of` looks into."""
    cls: Any = type(variable)
    return _may_hold_items(cls)


@cache
def _may_hold_items(cls: Any) -> bool:
    words = ("Dict", "List", "Tuple", "Set", "Size", "Range", "Deque", "Iterator", "Slice")
    return any(word in name for name in class_names(cls) for word in words)
