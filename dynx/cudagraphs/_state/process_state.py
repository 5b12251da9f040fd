"""The settings of torch that Python code and operators read: autocast, default dtype, determinism, precision, modes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from dynx._torch.compilation.in_use import active_modes, modes_check
from dynx._torch.ops.fast_checks import class_check, settings_check


def process_key(device_type: str) -> Hashable:
    """Return a key of the settings on which the operators and results of a call depend, besides grad mode."""
    return (
        torch.get_autocast_dtype(device_type) if torch.is_autocast_enabled(device_type) else None,
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.get_float32_matmul_precision(),
        *map(id, modes_of_program()),
    )


def modes_of_program() -> list[Any]:
    """Return the modes that are active on this thread, without those with which dynx undoes a trial."""
    return [mode for mode in active_modes() if not type(mode).__module__.startswith("dynx.")]


class ProcessCheck(NamedTuple):
    """Predicates that are true while settings of torch and the classes of modules are those that they were.

    Attributes:
        has_modes: Compares the modes of `__torch_function__` and `__torch_dispatch__`, such as a default device.
        has_settings: Compares more settings than a call depends on, grad mode for example.
        has_classes: Compares the classes.
        is_equal: Reads settings and classes one by one, where the others are false.
    """

    has_modes: Callable[[], bool]
    has_settings: Callable[[], bool]
    has_classes: Callable[[], bool]
    is_equal: Callable[[], bool]


def process_check(device_type: str, modules: Sequence[nn.Module]) -> ProcessCheck:
    """Return the check of settings and of the classes of modules."""
    before, kinds = process_key(device_type), list(map(type, modules))

    def is_equal() -> bool:
        return list(map(type, modules)) == kinds and process_key(device_type) == before

    return ProcessCheck(modes_check(), settings_check(), class_check(modules), is_equal)
