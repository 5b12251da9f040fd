"""Compare the parameter groups and the state of optimizers: numbers by their value, tensors by their address."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import torch

from dynx._torch.autograd.hooks_and_scalers import step_hooks_check
from dynx.cudagraphs._search.identity import PLAIN, are_identical, class_dicts, layout_of
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
from dynx.cudagraphs._state.comparison import Compared


def options_of(optimizers: Optimizers) -> tuple[tuple[str, Hashable], ...]:
    """Return the options, defaults and numbers in the state of optimizers, and attributes of parameters, each with its name.

    A tensor is represented by its address and layout, since its value may change in place.
    """
    options: list[tuple[str, Hashable]] = [
        (f"{name} of group {number}", tuple(map(id, value)) if name == "params" else _hashable(value))
        for number, group in enumerate(groups_of(optimizers))
        for name, value in group.items()
    ]
    compared: tuple[tuple[str, Callable[[Optimizers], Iterable[Mapping[str, Any]]], Callable[[Any], bool]], ...] = (
        ("{} of parameter {}", states_of_params, lambda value: value is not None and not isinstance(value, torch.Tensor)),
        ("{} of the state of optimizer {}", states_of, lambda value: not isinstance(value, (dict, torch.Tensor))),
        ("{} of the defaults of optimizer {}", defaults_of, lambda value: True),
        ("{}, an attribute of parameter {},", attributes_of_params, lambda value: type(value) in PLAIN),
    )
    for text, mappings_of, is_compared in compared:
        options += [
            (text.format(name, number), _hashable(value))
            for number, values in enumerate(mappings_of(optimizers))
            for name, value in values.items()
            if is_compared(value)
        ]
    return tuple(options)


def step_of(optimizer: torch.optim.Optimizer) -> tuple[Any, Any]:
    """Return the attribute `step` of an optimizer, which schedulers set (None if unset), and the method `step` of its class."""
    return vars(optimizer).get("step"), type(optimizer).step


def layouts_of(optimizers: Optimizers) -> Hashable:
    """Return a key of the state of optimizers: addresses and layouts of tensors, ids of state dicts and `step` functions."""
    states = states_of(optimizers)
    values = (value for state in (*states, *states_of_params(optimizers)) for value in state.values())
    steps = (id(step) for optimizer in optimizers for step in step_of(optimizer))
    return *steps, *map(id, states), *(layout_of(value) for value in values if isinstance(value, torch.Tensor))


def compared(optimizers: Optimizers) -> Compared:
    """Return what must not change before a replay: groups, state and `step` of the optimizers; step hooks must be absent."""
    held = [*(optimizer.param_groups for optimizer in optimizers), *(group["params"] for group in groups_of(optimizers))]
    nested = [(container, _hashable(container)) for container in nested_containers(optimizers)]
    checks = [_has_its_own(optimizer) for optimizer in optimizers]
    if nested:
        checks.append(lambda: all(_hashable(container) == contents for container, contents in nested))
    if others := [(each, list(each)) for each in held if not isinstance(each, list)]:
        checks.append(lambda: all(are_identical(each, contents) for each, contents in others))
    have_hooks = step_hooks_check(optimizers)
    return Compared(
        dicts=[*(d for d in dicts_of(optimizers) if d), *class_dicts(optimizers)],
        objects=optimizers,
        lists=[each for each in held if isinstance(each, list)],
        others=[*checks, lambda: not have_hooks()],
    )


def _has_its_own(optimizer: torch.optim.Optimizer) -> Callable[[], bool]:
    """Return a predicate: `step` is the same as now, and `state` and `param_groups` are, or contain, the same objects."""
    state, groups, own = optimizer.state, optimizer.param_groups, vars(optimizer).get
    values, members, step = list(state.values()), list(groups), own("step")

    def has() -> bool:
        now, now_groups = optimizer.state, optimizer.param_groups
        return (
            (now is state or are_identical([*now.values()], values))  # a wrapper may make a new dict of the same values
            and (now_groups is groups or are_identical(now_groups, members))
            and own("step") is step
        )

    return has


def _hashable(value: Any) -> Hashable:
    """Return a hashable form of a value: containers by element, numbers and other objects as their `repr`.

    A tensor is represented by its address and layout, since its value may change in place.
    """
    if isinstance(value, torch.Tensor):
        return layout_of(value)
    if isinstance(value, (list, tuple, set, deque)):
        return tuple(map(_hashable, value))
    if isinstance(value, dict):
        return tuple((_hashable(key), _hashable(item)) for key, item in value.items())
    return repr(value)
