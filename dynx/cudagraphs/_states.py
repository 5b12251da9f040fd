"""What besides its arguments a recording depends on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from dynx._torch.cuda_graphs import address_check
from dynx._torch.optimizers import has_gradient_hooks, has_step_hooks
from dynx.cudagraphs._dict_changes import unchanged
from dynx.cudagraphs._leaves import tensors_of
from dynx.cudagraphs._modules import binding_check, modules_of
from dynx.cudagraphs._recordings import Key
from dynx.cudagraphs._refusals import check_optimizer, check_parameters

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

    def changed_itself(self, before: Key) -> str:
        """Name what the function has changed of the state, as a replay would not."""
        return self.difference(before, now) if (now := self.key()) != before else ""


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


_DICTS = 8  # of a module, that are looked at


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
        return values, tuple(map(_place, self._tensors())), _autocast(self._device_type)

    def held(self) -> Any:
        return [list(each.values()) for each in self._dicts()]

    def check(self) -> Callable[[], bool]:
        are_same, tensors = self._unchanged(), [each for each in self._tensors() if not is_lazy(each)]
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
                each._backward_hooks,
                each._backward_pre_hooks,
            )
        ]

    def _tensors(self) -> list[torch.Tensor]:
        return [tensor for each in self._modules for tensor in (*each.parameters(), *each.buffers())]


def _place(tensor: torch.Tensor) -> Any:
    return None if is_lazy(tensor) else (tensor.data_ptr(), tensor.size(), tensor.stride(), tensor.dtype)


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
    """The state of modules, whether there are gradients, and of which parameters."""

    def key(self) -> Key:
        return (*super().key(), torch.is_grad_enabled(), tuple(map(_needs_gradient, self._tensors())))

    def check(self) -> Callable[[], bool]:
        is_same, is_enabled, now = super().check(), torch.is_grad_enabled, torch.is_grad_enabled()
        tensors = self._tensors()
        need = list(map(_needs_gradient, tensors))
        return lambda: is_same() and is_enabled() is now and list(map(_needs_gradient, tensors)) == need


_needs_gradient = attrgetter("requires_grad")


class TrainingState(State):
    """The modules that a loss uses, where parameters lie and which of them are trained, and what an optimizer goes by."""

    def __init__(
        self,
        loss_fn: Callable[..., Any],
        params: Sequence[torch.Tensor],
        optimizer: torch.optim.Optimizer | None,
        scaler: torch.amp.GradScaler | None,
    ) -> None:
        self._params, self._optimizer, self._scaler = params, optimizer, scaler
        self._inside = ModuleState(loss_fn, params[0].device.type)

    def key(self) -> Key:
        self._refuse()
        return self._inside.key(), self._given(), self._numbers(), self._places()

    def _refuse(self) -> None:
        """Raise UsageError for hooks that were registered since."""
        named = [(str(number), each) for number, each in enumerate(self._params)]
        check_parameters(named, self._params[0].device)
        if self._optimizer is not None:
            check_optimizer(self._optimizer, named, self._scaler)

    def held(self) -> Any:
        return self._inside.held(), self._state(), [list(each.values()) for each in self._of_parameters()]

    def undoing(self) -> Callable[[], str]:
        return self._inside.undoing()

    def changed_itself(self, before: Key) -> str:
        if inside := self._inside.changed_itself(before[0]):
            return inside
        now = self._given(), self._numbers()
        return self._named(before[1:3], now) if before[1:3] != now else ""  # not where its state lies, which a first step makes

    def _given(self) -> Key:
        return tuple((_place(each), each.requires_grad) for each in self._params)

    def _state(self) -> dict[Any, Any]:
        return {} if self._optimizer is None else self._optimizer.state

    def _of_parameters(self) -> list[dict[str, Any]]:
        return [each for each in self._state().values() if isinstance(each, dict)]

    def _groups(self) -> list[dict[str, Any]]:
        return [] if self._optimizer is None else self._optimizer.param_groups

    def _places(self) -> Key:
        """Give where what an optimizer keeps for each parameter lies."""
        if self._optimizer is None:
            return ()
        kept = (value for each in self._of_parameters() for value in each.values())
        return id(self._state()), *(value.data_ptr() for value in kept if isinstance(value, torch.Tensor))

    def _numbers(self) -> Key:
        """Give what an optimizer does its step with; tensors by address, since they may change in place."""
        found = [
            (f"{name} of group {number}", tuple(map(id, value)) if name == "params" else _known(value))
            for number, group in enumerate(self._groups())
            for name, value in group.items()
        ]
        found += [
            (f"{name} of parameter {number}", _known(value))
            for number, each in enumerate(self._of_parameters())
            for name, value in each.items()
            if value is not None and not isinstance(value, torch.Tensor)
        ]
        return *found, ("the scaler", self._of_scaler())

    def _of_scaler(self) -> Key:
        each = self._scaler
        return () if each is None else (each.get_growth_factor(), each.get_backoff_factor(), each.get_growth_interval())

    def difference(self, one: Key, other: Key) -> str:
        return self._inside.difference(one[0], other[0]) if one[0] != other[0] else self._named(one[1:], other[1:])

    def _named(self, one: Key, other: Key) -> str:
        if one[0] != other[0]:
            return "where a parameter lies, or whether it is trained,"
        before = dict(one[1])
        changed = [name for name, value in other[1] if before.get(name) != value]
        more = ", ..." if len(changed) > 3 else ""
        return f"{', '.join(changed[:3])}{more} (a tensor may change)" if changed else "the optimizer's state"

    def check(self) -> Callable[[], bool]:
        are_alike, params, scaler = self._inside.check(), self._params, self._of_scaler()
        addresses, all_of_them = [each.data_ptr() for each in params], list(range(len(params)))
        need = list(map(_needs_gradient, params))
        optimizer, state, groups = self._optimizer, self._state(), self._groups()
        given = [list(group["params"]) for group in groups]
        is_unchanged = unchanged([*([] if optimizer is None else [state]), *self._of_parameters(), *groups])

        def is_same() -> bool:
            return (
                are_alike()
                and _are_at(params, addresses, all_of_them)
                and list(map(_needs_gradient, params)) == need
                and (optimizer is None or (optimizer.state is state and optimizer.param_groups is groups))
                and len(groups) == len(given)
                and is_unchanged()
                and all(list(map(id, group["params"])) == ids for group, ids in zip(groups, numbers, strict=True))
                and self._of_scaler() == scaler
                and not any(map(has_gradient_hooks, params))
                and (optimizer is None or not has_step_hooks(optimizer))
            )

        numbers = [list(map(id, each)) for each in given]
        return is_same


def _known(value: Any) -> Any:
    """Give a number as it is, and a tensor, whose value may change, by its address."""
    return (value.data_ptr(), value.dtype) if isinstance(value, torch.Tensor) else repr(value)
