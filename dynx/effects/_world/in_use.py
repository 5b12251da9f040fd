"""State that functions use without naming it: global module hooks, active modes, custom operators, the root logger."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

from dynx._reading.owner import owner_of_code
from dynx._reading.variables import Namespace, Variable
from dynx._torch.compilation.in_use import active_modes, functions_of_custom_ops, hooks_of_all_modules, names_of_hooks
from dynx.effects._world.layout import attributes_of, is_of_torch


def variables_in_use(copy: Callable[[Any], Any]) -> Iterator[Variable | Namespace]:
    """Yield variables to copy: the attributes of torch's active dispatch and function modes, and dicts of global module hooks.

    The root logger, functions of custom operators and classes of modes are passed to `copy` instead, which collects them:
    `variables_found` then yields the variables that they use.
    """
    copy(logging.root)
    for functions in functions_of_custom_ops(_is_not_of_torch):
        for function in functions:
            copy(function)
    for name in names_of_hooks():
        yield Variable(f"torch.nn.modules.module.{name}", hooks_of_all_modules(), name)
    for mode in active_modes():
        if is_of_torch(mode) or type(mode).__module__.startswith("dynx."):  # such as dynx's `RecordDraws`
            continue
        copy(type(mode))
        path, attributes = type(mode).__qualname__, attributes_of(mode)
        yield Namespace(path, attributes)
        for name in tuple(attributes):
            yield Variable(f"{path}.{name}", attributes, name)


def _is_not_of_torch(function: Any) -> bool:
    return type(function) is not FunctionType or owner_of_code(function.__code__) != "torch"
