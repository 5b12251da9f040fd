"""What besides its arguments a recording depends on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Protocol
from weakref import ref

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from dynx._torch.ops.cuda_graphs import address_check
from dynx.cudagraphs._recording.cache import Key
from dynx.cudagraphs._state.dict_watch import unchanged
from dynx.cudagraphs._state.find_modules import binding_check, binding_key, modules_of
from dynx.cudagraphs._state.params import tensors_of

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


_STRUCTURE = (
    "_parameters",
    "_buffers",
    "_modules",
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)


class ModuleState(State):
    """The modules that a function uses: their attributes, parameters, buffers, submodules and forward hooks, where the tensors
    lie, and autocast.

    Not seen: what changes inside of an attribute, such as an element of a list.
    """

    _names: tuple[str, ...] = ("__dict__", *_STRUCTURE)

    def __init__(self, function: Callable[..., Any], device_type: str, others: Sequence[nn.Module] = ()) -> None:
        self._function, self._device_type = function, device_type
        self._others = [ref(each) for each in others]

    @property
    def _modules(self) -> list[nn.Module]:
        others = [each() for each in self._others]
        return [*modules_of(self._function), *(each for each in others if each is not None)]

    def key(self) -> Key:
        values = tuple(tuple((name, id(value)) for name, value in each.items()) for each in self._dicts())
        names = binding_key(self._function)
        return values, tuple(map(place_of, self._tensors())), _autocast(self._device_type), names

    def held(self) -> Any:
        return [list(each.values()) for each in self._dicts()]

    def check(self) -> Callable[[], bool]:
        are_same, tensors = self._unchanged(), list(filter(has_place, self._tensors()))
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
                owner, _ = self._owned()[number]
                return f"{name} of a {type(owner).__name__}"
        if one[3] != other[3]:
            return "which module a name stands for"
        return "where a parameter lies" if one[1] != other[1] else "autocast"

    def undoing(self) -> Callable[[], str]:
        return undoing(self._dicts())

    def _dicts(self) -> list[dict[str, Any]]:
        return [each for _, each in self._owned()]

    def _owned(self) -> list[tuple[nn.Module, dict[str, Any]]]:
        """Give the dictionaries that are looked at, and the modules that they belong to."""
        all_of_them = [module for each in self._modules for module in each.modules()]
        found = ((each, getattr(each, name)) for each in all_of_them for name in self._names)
        return [(owner, each) for owner, each in found if isinstance(each, dict)]  # those of TorchScript are none

    def _tensors(self) -> list[torch.Tensor]:
        return [tensor for each in self._modules for tensor in (*each.parameters(), *each.buffers())]


def undoing(dicts: Sequence[dict[str, Any]]) -> Callable[[], str]:
    """Give what puts back what was assigned since, and names it."""
    before = [(each, dict(each)) for each in dicts]

    def put_back() -> str:
        names = [name for now, then in before for name in {**then, **now} if now.get(name, then) is not then.get(name, now)]
        for now, then in before if names else ():
            now.clear()
            now.update(then)
        return ", ".join(dict.fromkeys(names))

    return put_back


needs_gradient = attrgetter("requires_grad")


def place_of(tensor: torch.Tensor) -> Any:
    """Give where a tensor lies, and how."""
    if is_lazy(tensor) or not has_place(tensor):
        return id(tensor)
    return tensor.data_ptr(), tensor.size(), tensor.stride(), tensor.dtype


def has_place(tensor: torch.Tensor) -> bool:
    return tensor.layout == torch.strided and not is_lazy(tensor)


def _autocast(device_type: str) -> torch.dtype | None:
    return torch.get_autocast_dtype(device_type) if torch.is_autocast_enabled(device_type) else None


class MovingState(ModuleState):
    """The state of modules whose parameters and buffers may be others, in other places."""

    def key(self) -> Key:
        numbers = {id(each): (number,) for number, each in enumerate(tensors_of(self._modules))}
        values = tuple(
            tuple((name, numbers.get(id(value), id(value))) for name, value in each.items()) for each in self._dicts()
        )
        names = binding_key(self._function)
        return values, (), _autocast(self._device_type), names

    def held(self) -> Any:
        told = {id(each) for each in tensors_of(self._modules)}
        return [value for each in self._dicts() for value in each.values() if id(value) not in told]

    def check(self) -> Callable[[], bool]:
        are_same, device_type, autocast = self._unchanged(), self._device_type, _autocast(self._device_type)
        return lambda: are_same() and _autocast(device_type) == autocast


class Structure(ModuleState):
    """The state of modules but for their other attributes: those that a function assigns stay those of the recording, which
    replays fill.
    """

    _names = _STRUCTURE

    def key(self) -> Key:
        return (*super().key(), tuple(map(_is_training, self._all())))

    def check(self) -> Callable[[], bool]:
        is_same, modules = super().check(), self._all()
        flags = list(map(_is_training, modules))
        return lambda: is_same() and list(map(_is_training, modules)) == flags

    def difference(self, one: Key, other: Key) -> str:
        return super().difference(one, other) if one[:4] != other[:4] else "train or eval"

    def covers(self, value: Any) -> bool:
        """Tell whether something is a module that is looked at."""
        return any(value is each for each in self._all())

    def _all(self) -> list[nn.Module]:
        return [module for each in self._modules for module in each.modules()]


_is_training = attrgetter("training")


class GradState(ModuleState):
    """The state of modules, whether there are gradients, and of which parameters."""

    def key(self) -> Key:
        return (*super().key(), torch.is_grad_enabled(), tuple(map(needs_gradient, self._tensors())))

    def check(self) -> Callable[[], bool]:
        is_same, is_enabled, now = super().check(), torch.is_grad_enabled, torch.is_grad_enabled()
        tensors = self._tensors()
        need = list(map(needs_gradient, tensors))
        return lambda: is_same() and is_enabled() is now and list(map(needs_gradient, tensors)) == need
