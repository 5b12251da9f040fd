"""Find the nn.Modules that a function uses, and the nn.Modules that own certain parameters."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from dynx._bytecode.cells import is_filled
from dynx.cudagraphs._search.code_names import plain_functions
from dynx.cudagraphs._search.search import Search


def modules_of(function: Callable[..., Any]) -> list[nn.Module]:
    """Return the nn.Modules that a function uses at present; of nested modules, only the outermost."""
    return Search(function).modules


def unset_closure_variables(function: Callable[..., Any]) -> list[str]:
    """Return the names of a function's closure variables that have no value yet."""
    return [
        name
        for inner in plain_functions(function)
        for name, cell in zip(inner.__code__.co_freevars, inner.__closure__ or (), strict=True)
        if not is_filled(cell) and name != inner.__code__.co_name  # the function itself, which may be recursive
    ]


def modules_holding(params: Sequence[torch.Tensor]) -> list[nn.Module]:
    """Return nn.Modules that together own these parameters, out of all modules that are alive in this process.

    Modules are chosen one by one: each time, the module that owns the most of the remaining parameters, and among
    equals the module with the most submodules, since the state of layers without parameters matters too.
    """
    missing = {id(param) for param in params}
    if not missing:
        return []
    modules = (value for value in gc.get_objects() if issubclass(type(value), nn.Module))
    candidates = [(module, held) for module in modules if (held := _params_of(module) & missing)]
    holding = []
    while missing:
        module, held = max(
            candidates,
            key=lambda candidate: (len(candidate[1] & missing), len(list(candidate[0].modules()))),
            default=(None, set[int]()),
        )
        if module is None or not held & missing:
            break  # the remaining parameters belong to no module
        holding.append(module)
        missing -= held
    return holding


def _params_of(module: nn.Module) -> set[int]:
    try:
        return {id(param) for param in nn.Module.parameters(module)}
    except (AttributeError, TypeError):  # its constructor raised
        return set()
