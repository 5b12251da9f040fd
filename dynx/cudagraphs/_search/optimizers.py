"""List what optimizers hold: parameter groups, state, the containers nested in these, other objects, and tensors."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from dynx.cudagraphs._search.identity import PLAIN

Optimizers = Sequence[torch.optim.Optimizer]


def groups_of(optimizers: Optimizers) -> list[dict[str, Any]]:
    """Return the parameter groups of all optimizers, each once: a wrapper may share the groups of the optimizer it wraps."""
    groups = (group for optimizer in optimizers for group in optimizer.param_groups)
    return list({id(group): group for group in groups}.values())


def states_of(optimizers: Optimizers) -> list[dict[Any, Any]]:
    """Return the attribute `state` of each optimizer: a dict with the state of its parameters. Each dict is listed once."""
    return list({id(optimizer.state): optimizer.state for optimizer in optimizers}.values())


def states_of_params(optimizers: Optimizers) -> list[dict[str, Any]]:
    """Return the dicts inside of the dicts of `states_of`: one for each parameter, and dicts stored under other keys."""
    return [state for states in states_of(optimizers) for state in states.values() if isinstance(state, dict)]


def dicts_of(optimizers: Optimizers) -> list[dict[Any, Any]]:
    """Return the dicts in which optimizers keep values: `state`, dicts in it, groups, `defaults`, `__dict__` of parameters."""
    own = [*states_of(optimizers), *states_of_params(optimizers), *groups_of(optimizers), *defaults_of(optimizers)]
    return [*own, *attributes_of_params(optimizers)]


def containers_of(optimizers: Optimizers) -> list[Any]:
    """Return the dicts in which optimizers keep values (see `dicts_of`), and the dicts, lists and deques nested in them."""
    found, pending = dict[int, Any](), list[Any](dicts_of(optimizers))
    while pending:
        container = pending.pop()
        if id(container) not in found:
            found[id(container)] = container
            values = container.values() if isinstance(container, dict) else container
            pending += [value for value in values if isinstance(value, (dict, list, deque))]
    return list(found.values())


def nested_containers(optimizers: Optimizers) -> list[Any]:
    """Return the dicts, lists and deques that are nested in the dicts of `dicts_of`, without the lists of parameters."""
    own = {*map(id, dicts_of(optimizers)), *(id(group["params"]) for group in groups_of(optimizers))}
    return [container for container in containers_of(optimizers) if id(container) not in own]


def objects_in(optimizers: Optimizers) -> list[Any]:
    """Return the objects in optimizers' containers (see `containers_of`), except containers, tensors, numbers and text."""
    values = (
        value
        for container in containers_of(optimizers)
        for value in (container.values() if isinstance(container, dict) else container)
    )
    return [value for value in values if type(value) not in PLAIN and not isinstance(value, (dict, list, deque, torch.Tensor))]


def attributes_of_params(optimizers: Optimizers) -> list[dict[str, Any]]:
    return [vars(param) for group in groups_of(optimizers) for param in group["params"]]


def defaults_of(optimizers: Optimizers) -> list[dict[str, Any]]:
    return [defaults for optimizer in optimizers if isinstance(defaults := vars(optimizer).get("defaults"), dict)]


def tensors_in_state(optimizers: Optimizers, params: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors in the state of these parameters; there may be some before the first step, as in Adagrad."""
    states = [state for states in states_of(optimizers) for param in params if isinstance(state := states.get(param), dict)]
    return [value for state in states for value in state.values() if isinstance(value, torch.Tensor)]
