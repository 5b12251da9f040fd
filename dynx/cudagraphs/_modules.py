"""Which modules a function uses: itself, its object, what it closes over, its globals."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from operator import attrgetter, is_
from types import CellType, FunctionType
from typing import Any

from torch import nn


def modules_of(function: Callable[..., Any]) -> list[nn.Module]:
    """Find the modules that a function uses now."""
    if isinstance(function, nn.Module):
        return [function]
    owner = getattr(function, "__self__", None)
    if isinstance(owner, nn.Module):
        return [owner]
    cells, names = _bindings(function)
    return [*(each.cell_contents for each in cells), *names.values()]


def binding_check(function: Callable[..., Any]) -> Callable[[], bool] | None:
    """Give what tells whether the names by which a function finds modules stand for those of now; None where there are none."""
    if isinstance(function, nn.Module) or isinstance(getattr(function, "__self__", None), nn.Module):
        return None
    cells, names = _bindings(function)
    if not cells and not names:
        return None
    scope = getattr(_plain(function), "__globals__", {})
    contents, modules = [each.cell_contents for each in cells], list(names.values())

    def are_bound() -> bool:
        try:
            return all(map(is_, map(_content, cells), contents)) and all(map(is_, map(scope.get, names), modules))
        except ValueError:  # a variable was deleted
            return False

    return are_bound


def unset(function: Callable[..., Any]) -> list[str]:
    """Name the variables around a function that have no value yet."""
    inner = _plain(function)
    if inner is None:
        return []
    cells = zip(inner.__code__.co_freevars, inner.__closure__ or (), strict=True)
    itself = inner.__code__.co_name  # which it may call
    return [name for name, cell in cells if _is_empty(cell) and name != itself]


def _bindings(function: Callable[..., Any]) -> tuple[list[CellType], dict[str, nn.Module]]:
    """Give the variables around a function that hold modules, and the globals that are some."""
    inner = _plain(function)
    if inner is None:
        return [], {}
    full = [each for each in inner.__closure__ or () if not _is_empty(each)]
    known = {name: inner.__globals__[name] for name in inner.__code__.co_names if name in inner.__globals__}
    cells = [each for each in full if isinstance(each.cell_contents, nn.Module)]
    return cells, {name: each for name, each in known.items() if isinstance(each, nn.Module)}


def _plain(function: Callable[..., Any]) -> FunctionType | None:
    """Give the function behind wrappers and methods; None where that is written in C."""
    inner: Any = inspect.unwrap(function)
    inner = getattr(inner, "__func__", inner)
    return inner if inspect.isfunction(inner) else None


_content = attrgetter("cell_contents")


def _is_empty(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:  # what it is for comes later
        return True
    return False
