"""Which modules a function uses: itself, its object, what it closes over, its globals; those of what it wraps too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter, is_
from types import CellType, CodeType, FunctionType
from typing import Any, NamedTuple

from torch import nn


class _Name(NamedTuple):
    """A global variable that holds a module."""

    scope: dict[str, Any]
    name: str
    module: nn.Module


def modules_of(function: Callable[..., Any]) -> list[nn.Module]:
    """Find the modules that a function uses now."""
    if isinstance(function, nn.Module):
        return [function]
    cells, names = _bindings(function)
    found = [*_owners(function), *(each.cell_contents for each in cells), *(each.module for each in names)]
    return list({id(each): each for each in found}.values())


def binding_check(function: Callable[..., Any]) -> Callable[[], bool] | None:
    """Give what tells whether the names by which a function finds modules stand for those of now; None where there are none."""
    if isinstance(function, nn.Module):
        return None
    cells, names = _bindings(function)
    if not cells and not names:
        return None
    contents = [each.cell_contents for each in cells]

    def are_bound() -> bool:
        try:
            return all(map(is_, map(_content, cells), contents)) and all(
                scope.get(name) is module for scope, name, module in names
            )
        except ValueError:  # a variable was deleted
            return False

    return are_bound


def unset(function: Callable[..., Any]) -> list[str]:
    """Name the variables around a function that have no value yet."""
    return [
        name
        for inner in _plain(function)
        for name, cell in zip(inner.__code__.co_freevars, inner.__closure__ or (), strict=True)
        if _is_empty(cell) and name != inner.__code__.co_name  # itself, which it may call
    ]


def _bindings(function: Callable[..., Any]) -> tuple[list[CellType], list[_Name]]:
    """Give the variables around a function that hold modules, and the globals that are some."""
    cells, names = list[CellType](), list[_Name]()
    for inner in _plain(function):
        full = (each for each in inner.__closure__ or () if not _is_empty(each))
        cells += [each for each in full if isinstance(each.cell_contents, nn.Module)]
        known = ((name, inner.__globals__.get(name)) for name in dict.fromkeys(_names(inner.__code__)))
        names += [_Name(inner.__globals__, name, each) for name, each in known if isinstance(each, nn.Module)]
    return cells, names


def _names(code: CodeType) -> Iterator[str]:
    """Give the names that code uses, and functions, generators and classes within it."""
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _names(each)


def _owners(function: Any) -> list[nn.Module]:
    """Give the modules that a function is a method of, or is given beforehand."""
    levels = list(_levels(function))
    given = [value for each in levels if isinstance(each, partial) for value in (*each.args, *each.keywords.values())]
    return [each for each in (*(getattr(level, "__self__", None) for level in levels), *given) if isinstance(each, nn.Module)]


def _plain(function: Any) -> list[FunctionType]:
    """Give the functions behind wrappers and methods; none where they are written in C."""
    inner = (getattr(each, "__func__", each) for each in _levels(function))
    return [each for each in inner if isinstance(each, FunctionType)]


_DEEP = 100  # wrappers: an object may say that it wraps ever new ones


def _levels(function: Any) -> Iterator[Any]:
    """Give a function, and what it wraps in turn."""
    seen = set[int]()
    while function is not None and id(function) not in seen and len(seen) < _DEEP:
        seen.add(id(function))
        yield function
        function = function.func if isinstance(function, partial) else getattr(function, "__wrapped__", None)


_content = attrgetter("cell_contents")


def _is_empty(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:  # what it is for comes later
        return True
    return False
