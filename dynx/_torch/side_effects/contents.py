"""Copy and compare what Dynamo tracks of a container: the `VariableTracker`s in a list, dict or set, an iterator's position."""

from __future__ import annotations

from operator import is_
from typing import Any, Literal, NamedTuple

from dynx._torch.cache.guard_failures import guard_source
from dynx._torch.tracing.variables import container_of, is_kind, is_lazy, may_hold_items, settled, stored, untouched_value

_TUPLES = ("TupleVariable", "SizeVariable", "UserDefinedTupleVariable")
_IMMUTABLE = (*_TUPLES, "FrozensetVariable", "RangeVariable", "SliceVariable")
Token = tuple[Any, ...]  # identifies the value of a `VariableTracker`: a literal, an object with a source, or a new object
_LITERALS = (bool, int, float, complex, str, bytes, type(None))


class Contents(NamedTuple):
    """The contents of a container at one time, as `VariableTracker`s; or how far an iterator has advanced."""

    kind: Literal["sequence", "mapping", "set", "position"]
    entries: tuple[Any, ...]  # of a mapping: keys and values in turn

    def tokens(self) -> list[Token]:
        """Return a comparison key for each element of `entries`; two `VariableTracker`s of the same value have equal keys."""
        return [*map(_token, self.entries)]


def is_iterator(variable: Any) -> bool:
    """Return whether a variable is an iterator whose position compiled code restores (2.15: `BaseListIteratorVariable`)."""
    return is_kind(variable, "ListIteratorVariable", "BaseListIteratorVariable", "CountIteratorVariable")


def contents_of(variable: Any) -> Contents | None:
    """Return the current contents of a mutable container or iterator; None for other variables.

    Torch: `.items`, a list or deque for sequences and a dict for mappings and sets, whose keys are wrapped;
    `ListIteratorVariable.index` and `CountIteratorVariable.advance_count`.
    """
    if not may_hold_items(variable):
        return None
    container = container_of(variable)
    if is_kind(container, *_IMMUTABLE) or is_kind(variable, *_IMMUTABLE):
        return None
    if is_iterator(container):
        positions = stored(container, "index"), stored(container, "advance_count")
        return next((Contents("position", (position,)) for position in positions if isinstance(position, int)), None)
    items = stored(container, "items")
    if isinstance(items, dict):
        keys = [getattr(key, "vt", key) for key in items]
        if is_kind(container, "SetVariable", "DictKeySetVariable", "OrderedSetVariable"):
            return Contents("set", tuple(keys))
        return Contents("mapping", tuple(part for pair in zip(keys, items.values(), strict=True) for part in pair))
    if isinstance(items, (list, tuple)) and not is_kind(container, "IteratorVariable"):
        return Contents("sequence", tuple(items))
    return None


def size_of(variable: Any) -> int:
    """Return the number of items of a container, or how far an iterator has advanced; -1 for other variables."""
    items = stored(variable, "items")
    if items is None:
        return -1
    index = stored(variable, "index")
    return index if isinstance(index, int) else len(items)


def is_same(before: Contents, after: Contents) -> bool:
    """Return whether two recorded contents are equal, ignoring the order of sets; never calls the `__eq__` of user classes."""
    if len(before.entries) != len(after.entries):
        return False
    if all(map(is_, before.entries, after.entries)):
        return True
    tokens = before.tokens(), after.tokens()
    return set(tokens[0]) == set(tokens[1]) if after.kind == "set" else tokens[0] == tokens[1]


def _token(entry: Any) -> Token:
    """Return a key that is equal for two `VariableTracker`s of the same literal, the same source or the same object."""
    if not hasattr(entry, "mutation_type"):
        return ("plain", entry)
    variable = settled(entry)
    value = None
    if is_lazy(variable):
        value = untouched_value(variable)
    elif is_kind(variable, "ConstantVariable"):
        value = stored(variable, "value")
    else:
        source = stored(variable, "source")
        return ("variable", id(variable)) if source is None else ("source", guard_source(source))
    if type(value) in _LITERALS:
        return ("literal", type(value), repr(value))
    return ("object", id(value))


def is_update(before: Contents, after: Contents) -> bool:
    """Return whether `before.update(after)` would leave exactly `after`, also the order of a dict; True for other kinds."""
    if after.kind not in ("mapping", "set"):
        return True
    old, new = (contents.tokens()[:: 1 + (contents.kind == "mapping")] for contents in (before, after))
    updated = [*old, *(key for key in new if key not in set(old))]
    return set(updated) == set(new) if after.kind == "set" else updated == new
