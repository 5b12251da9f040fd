"""Compare the groups and the state of optimizers: numbers by their value, tensors by their address."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from operator import is_
from typing import Any

import torch

from dynx._torch.autograd.hooks_and_scalers import step_hooks_check
from dynx.cudagraphs._search.identity import PLAIN, layout_of
from dynx.cudagraphs._search.optimizers import (
    Optimizers,
    attributes_of_params,
    defaults_of,
    dicts_of,
    groups_of,
    nested_containers,
    states_of,
    states_of_params,
)
from dynx.cudagraphs._state.dict_watch import unchanged


def options_of(optimizers: Optimizers) -> tuple[tuple[str, Hashable], ...]:
    """Return options of the groups and numbers in the state, by name.

    A tensor is represented by its address, since its value may change in place.
    """
    options: list[tuple[str, Hashable]] = [
        (f"{name} of group {number}", tuple(map(id, value)) if name == "params" else _hashable(value))
        for number, group in enumerate(groups_of(optimizers))
        for name, value in group.items()
    ]
    options += [
        (f"{name} of parameter {number}", _hashable(value))
        for number, state in enumerate(states_of_params(optimizers))
        for name, value in state.items()
        if value is not None and not isinstance(value, torch.Tensor)
    ]
    options += [
        (f"{name} of the state of optimizer {number}", _hashable(value))
        for number, states in enumerate(states_of(optimizers))
        for name, value in states.items()
        if not isinstance(value, (dict, torch.Tensor))
    ]
    options += [
        (f"{name} of the defaults of optimizer {number}", _hashable(value))
        for number, defaults in enumerate(defaults_of(optimizers))
        for name, value in defaults.items()
    ]
    options += [
        (f"{name}, an attribute of parameter {number},", _hashable(value))
        for number, attributes in enumerate(attributes_of_params(optimizers))
        for name, value in attributes.items()
        if type(value) in PLAIN
    ]
    return tuple(options)


def step_of(optimizer: torch.optim.Optimizer) -> tuple[Any, Any]:
    """Return the function that an optimizer has as its own `step`, as a scheduler sets one, and that of its class."""
    return vars(optimizer).get("step"), type(optimizer).step


def layouts_of(optimizers: Optimizers) -> Hashable:
    """Return the addresses of the tensors in the state, which dicts hold them, and which functions step."""
    states = states_of(optimizers)
    values = (value for state in (*states, *states_of_params(optimizers)) for value in state.values())
    steps = (id(step) for optimizer in optimizers for step in step_of(optimizer))
    return *steps, *map(id, states), *(layout_of(value) for value in values if isinstance(value, torch.Tensor))


def predicate(optimizers: Optimizers) -> Callable[[], bool]:
    """Return a fast predicate that is true while groups and state of the optimizers are unchanged, and steps have no hooks."""
    own = [
        (optimizer, optimizer.state, list(optimizer.state.values()), list(optimizer.param_groups)) for optimizer in optimizers
    ]
    params_of_groups = [(group, list(group["params"])) for group in groups_of(optimizers)]
    is_unchanged, have_hooks = unchanged([d for d in dicts_of(optimizers) if d]), step_hooks_check(optimizers)
    steps = [(optimizer, step_of(optimizer)) for optimizer in optimizers]
    nested = [(container, _hashable(container)) for container in nested_containers(optimizers)]

    def is_same() -> bool:
        for optimizer, state, values, groups in own:
            current = optimizer.state
            if current is not state and not _are_same([*current.values()], values):  # a wrapper may make it anew
                return False
            if not _are_same(optimizer.param_groups, groups):
                return False
        for group, params in params_of_groups:
            if not _are_same(group["params"], params):
                return False
        for optimizer, step in steps:
            if step_of(optimizer) != step:
                return False
        for container, contents in nested:
            if _hashable(container) != contents:
                return False
        return is_unchanged() and not have_hooks()

    return is_same


def _are_same(objects: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(objects) == len(others) and all(map(is_, objects, others))


def _hashable(value: Any) -> Hashable:
    """Return a number as text; a tensor as its address and layout, since its value may change in place."""
    if isinstance(value, torch.Tensor):
        return layout_of(value)
    if isinstance(value, (list, tuple, set, deque)):
        return tuple(map(_hashable, value))
    if isinstance(value, dict):
        return tuple((_hashable(key), _hashable(item)) for key, item in value.items())
    return repr(value)
