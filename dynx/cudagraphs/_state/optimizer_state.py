"""The groups and the state of optimizers: numbers by their value, tensors by their address."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import is_
from typing import Any

import torch

from dynx._torch.autograd.hooks_and_scalers import step_hooks_check
from dynx.cudagraphs._state.dict_watch import unchanged
from dynx.cudagraphs._state.identity import PLAIN, layout_of

Optimizers = Sequence[torch.optim.Optimizer]


def groups_of(optimizers: Optimizers) -> list[dict[str, Any]]:
    """Return the groups of all optimizers, each once: a wrapper may have those of the optimizer in it."""
    groups = (group for optimizer in optimizers for group in optimizer.param_groups)
    return list({id(group): group for group in groups}.values())


def states_of(optimizers: Optimizers) -> list[dict[Any, Any]]:
    """Return the dicts that hold the state of all parameters, each once."""
    return list({id(optimizer.state): optimizer.state for optimizer in optimizers}.values())


def states_of_params(optimizers: Optimizers) -> list[dict[str, Any]]:
    """Return the state of each parameter, and other dicts among their states."""
    return [state for states in states_of(optimizers) for state in states.values() if isinstance(state, dict)]


def dicts_of(optimizers: Optimizers) -> list[dict[Any, Any]]:
    """Return the dicts in which optimizers keep numbers and tensors: state, groups, defaults, attributes of parameters."""
    own = [*states_of(optimizers), *states_of_params(optimizers), *groups_of(optimizers), *_defaults_of(optimizers)]
    return [*own, *_attributes_of_params(optimizers)]


def containers_of(optimizers: Optimizers) -> list[Any]:
    """Return these dicts, and the lists, dicts and other containers in them."""
    found, pending = dict[int, Any](), list[Any](dicts_of(optimizers))
    while pending:
        container = pending.pop()
        if id(container) not in found:
            found[id(container)] = container
            values = container.values() if isinstance(container, dict) else container
            pending += [value for value in values if isinstance(value, (dict, list, deque))]
    return list(found.values())


def _attributes_of_params(optimizers: Optimizers) -> list[dict[str, Any]]:
    return [vars(param) for group in groups_of(optimizers) for param in group["params"]]


def _defaults_of(optimizers: Optimizers) -> list[dict[str, Any]]:
    return [defaults for optimizer in optimizers if isinstance(defaults := vars(optimizer).get("defaults"), dict)]


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
        for number, defaults in enumerate(_defaults_of(optimizers))
        for name, value in defaults.items()
    ]
    options += [
        (f"{name}, an attribute of parameter {number},", _hashable(value))
        for number, attributes in enumerate(_attributes_of_params(optimizers))
        for name, value in attributes.items()
        if type(value) in PLAIN
    ]
    return tuple(options)


def layouts_of(optimizers: Optimizers) -> Hashable:
    """Return the addresses of the tensors in the state, and which dicts hold them."""
    states = states_of(optimizers)
    values = (value for state in (*states, *states_of_params(optimizers)) for value in state.values())
    return *map(id, states), *(layout_of(value) for value in values if isinstance(value, torch.Tensor))


def predicate(optimizers: Optimizers) -> Callable[[], bool]:
    """Return a fast predicate that is true while groups and state of the optimizers are unchanged, and steps have no hooks."""
    own = [
        (optimizer, optimizer.state, list(optimizer.state.values()), list(optimizer.param_groups)) for optimizer in optimizers
    ]
    params_of_groups = [(group, list(group["params"])) for group in groups_of(optimizers)]
    is_unchanged, have_hooks = unchanged([d for d in dicts_of(optimizers) if d]), step_hooks_check(optimizers)

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


def tensors_in_state(optimizers: Optimizers, params: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors in the state of these parameters; Adagrad has them before its first step."""
    states = [state for states in states_of(optimizers) for param in params if isinstance(state := states.get(param), dict)]
    return [value for state in states for value in state.values() if isinstance(value, torch.Tensor)]
