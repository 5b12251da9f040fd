"""Read Dynamo's symbolic variables (`VariableTracker`) without changing them.

Torch: the subclasses of `VariableTracker` and its methods change with every release (47, 100 and 128 methods in 2.11, 2.13 and
2.15), so variables are distinguished by class name and read through a few attributes that all versions have.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from dynx._torch.cache.guard_failures import guard_source


def settled(variable: Any) -> Any:
    """Return the variable behind a realized lazy variable; any other variable unchanged.

    A lazy variable that torch has not realized is returned as it is: realizing it would add a guard.
    """
    while is_lazy(variable):
        if not variable.is_realized():
            return variable
        variable = variable.unwrap()
    return variable


def is_lazy(variable: Any) -> bool:
    """Return whether a variable is a `LazyVariableTracker`, realized or not; `isinstance` would realize it."""
    cls: Any = type(variable)
    return "LazyVariableTracker" in class_names(cls)


def untouched_value(variable: Any) -> Any:
    """Return the Python value of a lazy variable that torch has not realized.

    Torch: `LazyCache.value`; from 2.15 on computed constants are lazy too, with a cache of another class that has the same
    attribute.
    """
    return variable._cache.value


def is_kind(variable: Any, *names: str) -> bool:
    """Return whether the class of a variable, or one of its base classes, has one of these names."""
    cls: Any = type(variable)
    return not class_names(cls).isdisjoint(names)


@cache
def class_names(cls: Any) -> frozenset[str]:
    """Return the names of a class and its bases."""
    return frozenset(base.__name__ for base in cls.__mro__)


def stored(variable: Any, name: str) -> Any:
    """Return an attribute stored on the variable object itself, None if there is none; runs no code of its class.

    Where possible it avoids `vars`, which makes Python create a dictionary for each object.
    """
    cls: Any = type(variable)
    return vars(variable).get(name) if _overrides(cls, name) else getattr(variable, name, None)


@cache
def _overrides(cls: Any, name: str) -> bool:
    """Return whether a class defines `name` (such as a property) or `__getattr__`: then reading `name` may run its code."""
    return hasattr(cls, "__getattr__") or any(name in vars(base) for base in cls.__mro__)


def is_dynamic(variable: Any) -> bool:
    """Return whether a variable is a symbolic number with free symbols, not a specialized one."""
    from torch.fx.experimental.symbolic_shapes import free_symbols

    return is_kind(variable, "SymNodeVariable") and bool(free_symbols(variable.sym_num))


def source_of(variable: Any) -> str | None:
    """Return the source of a variable, such as `L['x'].size()[0]`; None for a value that the traced code created."""
    source = getattr(settled(variable), "source", None)
    return None if source is None else guard_source(source)


def example_of(variable: Any) -> Any | None:
    """Return the fake tensor or symbolic number of a variable that is in the graph, else None."""
    variable = settled(variable)
    cls: Any = type(variable)
    names = class_names(cls)
    if "LazyVariableTracker" in names:
        return None
    if "SymNodeVariable" in names:
        return variable.sym_num
    proxy = stored(variable, "proxy")
    return None if proxy is None else proxy.node.meta.get("example_value")


def cell_content(tx: Any, variable: Any) -> Any | None:
    """Return the symbolic variable in a closure cell; None if the cell is empty.

    Torch: what `SideEffects.load_cell` returns for a `CellVariable`, read from its tables: `load_cell` would raise the
    exception that traced code gets from an empty cell.
    """
    side_effects = tx.output.side_effects
    pending = side_effects.store_attr_mutations.get(variable, {}).get("cell_contents")
    if pending is not None:
        return None if is_kind(pending, "DeletedVariable") else pending
    return variable.pre_existing_contents


def items_of(variable: Any) -> list[Any] | dict[Any, Any] | None:
    """Return the variables in a built-in container, None for anything else.

    Torch: `.items`, a list for sequences and a dict for mappings and sets, of the variable that `container_of` returns.
    """
    if not may_hold_items(variable):
        return None
    for name in ("items", "set_items"):
        items = stored(variable, name)
        if isinstance(items, (list, dict)):
            return items
        if isinstance(items, tuple):
            return list(items)
    container = container_of(variable)
    return None if container is variable else items_of(container)


def container_of(variable: Any) -> Any:
    """Return the variable that holds the items of a container: for a subclass of a built-in container, the variable inside it.

    Torch: `_list_vt`, `_dict_vt`, `_set_vt` and `_tuple_vt` of a `UserDefinedObjectVariable` in 2.11, `_base_vt` in 2.13; in
    2.15 the variable's class inherits from the variable class of the built-in container.
    """
    for name in ("_base_vt", "_list_vt", "_dict_vt", "_set_vt", "_tuple_vt"):
        inner = stored(variable, name)
        if inner is not None:
            return inner
    return variable


def may_hold_items(variable: Any) -> bool:
    """Return whether a variable may be a container, judged by the name of its class."""
    cls: Any = type(variable)
    return class_may_hold_items(cls)


@cache
def class_may_hold_items(cls: Any) -> bool:
    """Return whether variables of a class may be containers, judged by its name and those of its bases."""
    parts = ("Dict", "List", "Tuple", "Set", "Size", "Range", "Deque", "Iterator", "Slice")
    return any(part in name for name in class_names(cls) for part in parts)
