"""`Watch`: find the objects of a program that change, no matter how code reaches them.

The parts of an object are the objects that it refers to (items, attributes); its own state is, for example, the checksum of a
tensor. An object is unchanged if its own state is equal and each part is the same object, or an equal number or text. The
user's code is not run.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Collection, Hashable, Iterable
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from dynx._bytecode.safe_read import text_of
from dynx._reading.names import names_in
from dynx.effects._world.layout import is_constant
from dynx.effects._world.parts import Parts, Readers

_MAX_OBJECTS = 300_000  # about 5 s
_MAX_SHOWN = 6  # parts of an object in a text


class Changed(NamedTuple):
    """A changed object: its path (`settings.limits`), and the items or attributes that differ, as text, before and after."""

    path: str
    before: str
    after: str


class Watch:
    """Remembers the items and attributes of objects and of all objects reachable from them, to find what changes later.

    `roots` are pairs of path and object; the path of a reachable object begins with that of its root. The `ignored`
    objects, all objects reachable from them, and objects whose `id()` is in `ids` are not watched. At most 300,000 objects
    are watched; `is_complete` is False if there are more.
    """

    def __init__(self, roots: Iterable[tuple[str, Any]], ignored: Iterable[Any] = (), ids: Collection[int] = ()) -> None:
        # three lists, since thousands of tuples would slow the garbage collector
        self._paths: list[str] = []
        self._values: list[Any] = []
        self._parts: list[Parts] = []  # kept alive, so that their ids are not reused
        seen, readers = _ids_of(ignored), Readers()
        for root in roots:
            queue = deque([root])
            while queue and len(self._values) < _MAX_OBJECTS:
                path, value = queue.popleft()
                if id(value) in seen or id(value) in ids or (parts := readers.parts_of(value)) is None:
                    continue
                seen.add(id(value))
                path = str(vars(value).get("__name__", path)) if isinstance(value, ModuleType) else path
                self._paths.append(path)
                self._values.append(value)
                self._parts.append(parts)
                for label, item in zip(parts.labels, parts.objects, strict=True):
                    if readers[type(item)] is not None and id(item) not in seen:
                        queue.append((path + label, item))
        self.is_complete = len(self._values) < _MAX_OBJECTS

    def changed(self) -> list[Changed]:
        """Return the objects that have changed since this Watch was created."""
        readers = Readers()
        changed: list[Changed] = []
        for path, value, before in zip(self._paths, self._values, self._parts, strict=True):
            after = readers.parts_of(value)
            if after is None or _is_unchanged(before, after):
                continue
            tokens = _token(before), _token(after)
            if tokens[0] != tokens[1]:
                changed.append(Changed(path, *_difference(*tokens)))
        return changed


def _is_unchanged(before: Parts, after: Parts) -> bool:
    """Return whether an object surely is unchanged: its items and attributes are the identical objects, other state equal."""
    is_same = before.own == after.own and before.labels == after.labels
    return is_same and all(map(operator.is_, before.objects, after.objects))


def _ids_of(objects: Iterable[Any]) -> set[int]:
    """Return the `id()` of the objects and of all objects reachable from them, such as globals that a function names.

    Classes and modules, and what only they lead to, are left out.
    """
    seen: set[int] = set()
    readers = Readers()
    pending = list(objects)
    while pending and len(seen) < _MAX_OBJECTS:
        value = pending.pop()
        if id(value) in seen or isinstance(value, (type, ModuleType)) or (parts := readers.parts_of(value)) is None:
            continue
        seen.add(id(value))
        pending += parts.objects
        if type(value) is FunctionType:
            scope = value.__globals__
            pending += (scope[name] for name in names_in(value.__code__).variables if name in scope)
    return seen


def _token(parts: Parts) -> tuple[Hashable, ...]:
    """Return a tuple that differs if an object has changed: its own state, and label, class and value (or id) of each part."""
    return (parts.own, *((label, *_token_of(item)) for label, item in zip(parts.labels, parts.objects, strict=True)))


def _token_of(item: Any) -> tuple[Hashable, Hashable]:
    if not is_constant(item):
        return type(item).__name__, id(item)
    try:
        hash(item)
    except TypeError:  # such as a slice with a list
        return type(item).__name__, id(item)
    return type(item).__name__, item if item == item else "nan"


def _difference(before: tuple[Any, ...], after: tuple[Any, ...]) -> tuple[str, str]:
    """Return as text how two results of `_token` differ: what only `before` has, and what only `after` has."""
    if before[1:] == after[1:]:
        return str(before[0]), str(after[0])
    texts = []
    for token, other in ((before, after), (after, before)):
        only = [part for part in token[1:] if part not in other[1:]] or list(token[1:])
        shown = [f"{label} = {_text(kind, value)}" for label, kind, value in only[:_MAX_SHOWN]]
        texts.append(", ".join(shown) + (", …" if len(only) > _MAX_SHOWN else "") or "nothing")
    return texts[0], texts[1]


def _text(kind: str, value: Any) -> str:
    return text_of(value) if not isinstance(value, int) or kind in ("int", "bool") else f"a {kind}"
