"""What besides its arguments a recording depends on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from operator import is_
from typing import Any, Protocol

import torch
from torch import nn

from dynx._torch.cuda_graphs import address_check
from dynx.cudagraphs._dict_changes import unchanged
from dynx.cudagraphs._leaves import tensors_of
from dynx.cudagraphs._modules import binding_check, modules_of
from dynx.cudagraphs._recordings import Key

_are_at = address_check()


class State(Protocol):
    """What a recording is made for besides the layout of its arguments."""

    def key(self) -> Key:
        """Give what tells one state from another."""

    def held(self) -> Any:
        """Give what must stay alive for the key to mean anything."""

    def check(self) -> Callable[[], bool]:
        """Give what tells quickly that the state is still that of now."""

    def difference(self, one: Key, other: Key) -> str:
        """Name what differs between two keys."""

    def undoing(self) -> Callable[[], str]:
        """Give what puts back attributes that were assigned since, and names them."""
        return str


class Frozen(State):
    """Nothing: the user promises it."""

    def key(self) -> Key:
        return ()

    def held(self) -> None:
        return None

    def check(self) -> Callable[[], bool]:
        return _always

    def difference(self, one: Key, other: Key) -> str:
        return "nothing"


def _always() -> bool:
    return True


_DICTS = 6  # of a module, that are looked at


class ModuleState(State):
    """The modules that a function uses: their attributes, parameters, buffers, submodules and forward hooks, where the tensors
    lie, and autocast.

    Not seen: what changes inside of an attribute, such as an element of a list.
    """

    def __init__(self, function: Callable[..., Any], device_type: str) -> None:
        self._function, self._device_type = function, device_type

    @property
    def _modules(self) -> list[nn.Module]:
        return modules_of(self._function)

    def key(self) -> Key:
        values = tuple(tuple((name, id(value)) for name, value in each.items()) for each in self._dicts())
        return values, tuple(each.data_ptr() for each in self._tensors()), _autocast(self._device_type)

    def held(self) -> Any:
        return [list(each.values()) for each in self._dicts()]

    def check(self) -> Callable[[], bool]:
        are_same, tensors = self._unchanged(), self._tensors()
        addresses, all_of_them = [each.data_ptr() for each in tensors], list(range(len(tensors)))
        device_type, autocast = self._device_type, _autocast(self._device_type)
        is_autocast = torch.is_autocast_enabled
        if autocast is None:
            return lambda: are_same() and _are_at(tensors, addresses, all_of_them) and not is_autocast(device_type)
        return lambda: are_same() and _are_at(tensors, addresses, all_of_them) and _autocast(device_type) == autocast

    def _unchanged(self) -> Callable[[], bool]:
        are_same, are_bound = unchanged(self._dicts()), binding_check(self._function)
        return are_same if are_bound is None else lambda: are_bound() and are_same()

    def difference(self, one: Key, other: Key) -> str:
        for number, (before, after) in enumerate(zip(one[0], other[0], strict=False)):
            for name, _ in sorted(set(before) ^ set(after)):
                owner = [module for each in self._modules for module in each.modules()][number // _DICTS]
                return f"{name} of a {type(owner).__name__}"
        return "where a parameter lies" if one[1] != other[1] else "autocast"

    def undoing(self) -> Callable[[], str]:
        before = [(each, dict(each)) for each in self._dicts()]

        def put_back() -> str:
            names = [name for now, then in before for name in {**then, **now} if now.get(name, then) is not then.get(name, now)]
            for now, then in before if names else ():
                now.clear()
                now.update(then)
            return ", ".join(names)

        return put_back

    def _dicts(self) -> list[dict[str, Any]]:
        all_of_them = [module for each in self._modules for module in each.modules()]
        return [
            found
            for each in all_of_them
            for found in (
                each.__dict__,
                each._parameters,
                each._buffers,
                each._modules,
                each._forward_hooks,
                each._forward_pre_hooks,
            )
        ]

    def _tensors(self) -> list[torch.Tensor]:
        return [tensor for each in self._modules for tensor in (*each.parameters(), *each.buffers())]


def _autocast(device_type: str) -> torch.dtype | None:
    return torch.get_autocast_dtype(device_type) if torch.is_autocast_enabled(device_type) else None


class MovingState(ModuleState):
    """The state of modules whose parameters and buffers may be others, in other places."""

    def key(self) -> Key:
        numbers = {id(each): (number,) for number, each in enumerate(tensors_of(self._modules))}
        values = tuple(
            tuple((name, numbers.get(id(value), id(value))) for name, value in each.items()) for each in self._dicts()
        )
        return values, (), _autocast(self._device_type)

    def held(self) -> Any:
        told = {id(each) for each in tensors_of(self._modules)}
        return [value for each in self._dicts() for value in each.values() if id(value) not in told]

    def check(self) -> Callable[[], bool]:
        are_same, device_type, autocast = self._unchanged(), self._device_type, _autocast(self._device_type)
        return lambda: are_same() and _autocast(device_type) == autocast


class GradState(ModuleState):
    """The state of modules, and whether there are gradients."""

    def key(self) -> Key:
        return (*super().key(), torch.is_grad_enabled())

    def check(self) -> Callable[[], bool]:
        is_same, is_enabled, now = super().check(), torch.is_grad_enabled, torch.is_grad_enabled()
        return lambda: is_same() and is_enabled() is now


class TrainingState(State):
    """Where parameters lie, and the numbers of an optimizer."""

    def __init__(self, params: Sequence[torch.Tensor], optimizer: torch.optim.Optimizer | None) -> None:
        self._params, self._optimizer = params, optimizer

    def key(self) -> Key:
        return (
            tuple(each.data_ptr() for each in self._params),
            self._numbers(),
            id(self._state()),
            _autocast(self._device_type()),
        )

    def held(self) -> Any:
        return self._state()

    def _device_type(self) -> str:
        return self._params[0].device.type

    def _state(self) -> Any:
        return None if self._optimizer is None else self._optimizer.state

    def _groups(self) -> list[dict[str, Any]]:
        return [] if self._optimizer is None else self._optimizer.param_groups

    def _numbers(self) -> Key:
        """Give what an optimizer does its step with; tensors by address, since they may change in place."""
        values = (value for group in self._groups() for name, value in group.items() if name != "params")
        return tuple(value.data_ptr() if isinstance(value, torch.Tensor) else value for value in values)

    def difference(self, one: Key, other: Key) -> str:
        names = [f"{name} of group {number}" for number, each in enumerate(self._groups()) for name in each if name != "params"]
        changed = [name for name, before, after in zip(names, one[1], other[1], strict=False) if before != after]
        if changed:
            return f"{', '.join(changed)} (a tensor may change)"
        return "where a parameter lies" if one[0] != other[0] else "the optimizer's state" if one[2] != other[2] else "autocast"

    def check(self) -> Callable[[], bool]:
        params, optimizer, state, groups = self._params, self._optimizer, self._state(), self._groups()
        addresses, all_of_them = [each.data_ptr() for each in params], list(range(len(params)))
        values = [value for group in groups for value in group.values()]
        device_type, autocast = self._device_type(), _autocast(self._device_type())

        def is_same() -> bool:
            return (
                _are_at(params, addresses, all_of_them)
                and (
                    optimizer is None
                    or (
                        optimizer.state is state
                        and optimizer.param_groups is groups
                        and all(map(is_, chain.from_iterable(map(dict.values, groups)), values))
                    )
                )
                and _autocast(device_type) == autocast
            )

        return is_same
