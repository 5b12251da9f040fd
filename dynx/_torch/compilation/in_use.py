"""Find objects that torch calls though no name in the program refers to them: global module hooks, custom ops, active modes.

Torch: the dicts `_global_…_hooks` of `torch.nn.modules.module`, `overrides._get_current_function_mode_stack`,
`utils._python_dispatch._get_current_dispatch_mode_stack` and `_disable_current_modes`, `_C.DisableTorchFunction`, and
`_library.custom_ops.OPDEFS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

from dynx._torch.capabilities import require


def hooks_of_all_modules() -> dict[str, Any]:
    """Return the namespace of `torch.nn.modules.module`, which holds the global module hooks."""
    from torch.nn.modules import module

    return vars(module)


def names_of_hooks() -> list[str]:
    """Return the names of torch's non-empty dicts of global module hooks, such as `_global_forward_hooks`."""
    hooks = hooks_of_all_modules()
    return [name for name in hooks if name.startswith("_global_") and name.endswith("_hooks") and hooks[name]]


def functions_of_custom_ops(is_wanted: Callable[[FunctionType], bool]) -> list[list[FunctionType]]:
    """Return the Python functions of each operator that `torch.library.custom_op` defined, including torch's own operators.

    `is_wanted` takes the function that was passed to `custom_op`; operators for which it returns False are omitted.
    """
    require("custom_ops")
    from torch._library.custom_ops import OPDEFS

    return [_functions_of(definition) for definition in list(OPDEFS.values()) if is_wanted(definition._init_fn)]


def _functions_of(definition: Any) -> list[FunctionType]:
    values = [definition._init_fn, *vars(definition).values()]
    values += [inner for value in values if type(value) is dict for inner in value.values()]
    return [value for value in values if isinstance(value, FunctionType)]


def active_modes() -> tuple[Any, ...]:
    """Return the active `TorchFunctionMode` and `TorchDispatchMode` objects of this thread."""
    require("active_modes", "dispatch_modes")
    from torch.overrides import _get_current_function_mode_stack
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    return (*_get_current_function_mode_stack(), *_get_current_dispatch_mode_stack())


def counts_of_modes() -> tuple[Callable[[], int], Callable[[], int]]:
    """Return fast functions that count the `TorchFunctionMode`s and the `TorchDispatchMode`s active on the calling thread."""
    require("function_modes", "dispatch_modes_counted")
    from torch._C import _len_torch_dispatch_stack, _len_torch_function_stack

    return _len_torch_function_stack, _len_torch_dispatch_stack


@contextmanager
def without_modes() -> Iterator[None]:
    """Disable the active modes, so that they do not intercept dynx's own calls of torch."""
    require("disabled_modes", "disabled_functions")
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    if not active_modes():
        yield
        return
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        yield
