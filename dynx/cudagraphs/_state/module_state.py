"""The state that a recording depends on besides its arguments: modules, their tensors, and autocast."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, Protocol
from weakref import ref

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from dynx._torch.ops.cuda_graphs import address_check
from dynx.cudagraphs._recording.cache import Key
from dynx.cudagraphs._state.dict_watch import unchanged
from dynx.cudagraphs._state.find_modules import binding_check, binding_key, modules_of, tensors_named_by
from dynx.cudagraphs._state.params import tensors_of

_are_at = address_check()


class State(Protocol):
    """The state that a recording is made for and depends on, besides the layout of its arguments."""

    def key(self) -> Key:
        """Return a hashable key of the state; equal states have equal keys."""

    def held(self) -> Any:
        """Return the objects whose ids are in the key: while they are held, no other object gets the same id."""

    def predicate(self) -> Callable[[], bool]:
        """Return a fast predicate that is true while the state is unchanged."""

    def difference(self, before: Key, after: Key) -> str:
        """Return a text for messages that names what differs between two keys."""

    def snapshot(self) -> Callable[[], str]:
        """Return a function that undoes assignments of attributes made after this call, and returns their names."""
        return str

    def changed_by_call(self, before: Key) -> str:
        """Return a text that names what a call of the function changed since the key `before`; "" if it changed nothing."""
        return self.difference(before, after) if (after := self.key()) != before else ""


class Unchecked(State):
    """No state: the user promises that it stays unchanged (`unsafe_skip_checks`)."""

    def key(self) -> Key:
        return ()

    def held(self) -> None:
        return None

    def predicate(self) -> Callable[[], bool]:
        return _always

    def difference(self, before: Key, after: Key) -> str:
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


class ModuleKey(NamedTuple):
    """A hashable key of the state of modules, which is part of the key of a recording."""

    attributes: tuple[tuple[tuple[str, int], ...], ...]  # names and ids of the values, by dictionary
    layouts: tuple[Hashable, ...]  # of parameters and buffers
    autocast: torch.dtype | None
    bindings: tuple[tuple[int, ...], ...]  # which names of the function are bound to which modules


class ModuleState(State):
    """The state of modules that a function uses: attributes, tensor addresses, submodules, hooks; also autocast.

    Changes inside of an attribute, such as a list that gets another element, are not detected.

    Args:
        function: The function that uses the modules.
        device_type: Device type whose autocast state is checked.
        others: Modules that are checked too.
    """

    _names: tuple[str, ...] = ("__dict__", *_STRUCTURE)

    def __init__(self, function: Callable[..., Any], device_type: str, others: Sequence[nn.Module] = ()) -> None:
        self._function, self._device_type = function, device_type
        self._others = [ref(module) for module in others]

    @property
    def _modules(self) -> list[nn.Module]:
        others = [reference() for reference in self._others]
        return [*modules_of(self._function), *(module for module in others if module is not None)]

    def key(self) -> Key:
        attributes = tuple(tuple((name, id(value)) for name, value in d.items()) for d in self._dicts())
        layouts = tuple(map(layout_of, self._tensors()))
        return ModuleKey(attributes, layouts, _autocast(self._device_type), binding_key(self._function))

    def held(self) -> Any:
        return [*(list(d.values()) for d in self._dicts()), tensors_named_by(self._function)]

    def predicate(self) -> Callable[[], bool]:
        is_unchanged, tensors = self._unchanged(), list(filter(has_address, self._tensors()))
        addresses, indices = [tensor.data_ptr() for tensor in tensors], list(range(len(tensors)))
        device_type, autocast = self._device_type, _autocast(self._device_type)
        is_autocast = torch.is_autocast_enabled
        if autocast is None:
            return lambda: is_unchanged() and _are_at(tensors, addresses, indices) and not is_autocast(device_type)
        return lambda: is_unchanged() and _are_at(tensors, addresses, indices) and _autocast(device_type) == autocast

    def _unchanged(self) -> Callable[[], bool]:
        is_unchanged, is_bound = unchanged(self._dicts()), binding_check(self._function)
        return is_unchanged if is_bound is None else lambda: is_bound() and is_unchanged()

    def difference(self, before: Key, after: Key) -> str:
        old, new = ModuleKey(*before[:4]), ModuleKey(*after[:4])
        for number, (attributes, changed) in enumerate(zip(old.attributes, new.attributes, strict=False)):
            for name, _ in sorted(set(attributes) ^ set(changed)):
                module, _ = self._owned_dicts()[number]
                return f"attribute {name} of a {type(module).__name__}"
        if old.bindings != new.bindings:
            return "the module or tensor that a variable or attribute refers to"
        return "the address of a parameter" if old.layouts != new.layouts else "autocast"

    def snapshot(self) -> Callable[[], str]:
        return snapshot(self._dicts())

    def _dicts(self) -> list[dict[str, Any]]:
        return [d for _, d in self._owned_dicts()]

    def _owned_dicts(self) -> list[tuple[nn.Module, dict[str, Any]]]:
        """Return the attribute dictionaries that are checked, each with its module."""
        modules = [module for outer in self._modules for module in outer.modules()]
        attributes = ((module, getattr(module, name)) for module in modules for name in self._names)
        return [(module, value) for module, value in attributes if isinstance(value, dict)]  # not those of TorchScript

    def _tensors(self) -> list[torch.Tensor]:
        """Return the tensors whose addresses are checked: of modules, their attributes, and those that the function names."""
        attributes = [value for d in self._dicts() for value in d.values() if issubclass(type(value), torch.Tensor)]
        tensors = [*tensors_of(self._modules), *attributes, *tensors_named_by(self._function)]
        return list({id(tensor): tensor for tensor in tensors}.values())


def snapshot(dicts: Sequence[dict[str, Any]]) -> Callable[[], str]:
    """Return a function that undoes changes of the dictionaries made after this call, and returns the changed keys."""
    copies = [(d, dict(d)) for d in dicts]

    def restore() -> str:
        names = [name for now, then in copies for name in {**then, **now} if now.get(name, then) is not then.get(name, now)]
        for now, then in copies if names else ():
            now.clear()
            now.update(then)
        return ", ".join(dict.fromkeys(names))

    return restore


needs_gradient = attrgetter("requires_grad")


def layout_of(tensor: torch.Tensor) -> Hashable:
    """Return address, sizes, strides and dtype of a tensor; its id if it has no address (sparse or uninitialized)."""
    if is_lazy(tensor) or not has_address(tensor):
        return id(tensor)
    return tensor.data_ptr(), tensor.size(), tensor.stride(), tensor.dtype


def has_address(tensor: torch.Tensor) -> bool:
    return tensor.layout == torch.strided and not is_lazy(tensor)


def _autocast(device_type: str) -> torch.dtype | None:
    return torch.get_autocast_dtype(device_type) if torch.is_autocast_enabled(device_type) else None


class PatchedParamsState(ModuleState):
    """The state of modules whose parameters and buffers may be replaced, since the pointers to them are patched."""

    def key(self) -> Key:
        numbers = {id(tensor): number for number, tensor in enumerate(tensors_of(self._modules))}
        attributes = tuple(
            tuple((name, -1 - numbers[id(value)] if id(value) in numbers else id(value)) for name, value in d.items())
            for d in self._dicts()
        )
        layouts = tuple(map(layout_of, self._tensors()))
        return ModuleKey(attributes, layouts, _autocast(self._device_type), binding_key(self._function))

    def held(self) -> Any:
        patched = {id(tensor) for tensor in tensors_of(self._modules)}
        return [*(value for d in self._dicts() for value in d.values() if id(value) not in patched), *self._tensors()]

    def _tensors(self) -> list[torch.Tensor]:
        """Return the tensors whose addresses are checked, as in other states but without those that are patched."""
        patched = {id(tensor) for tensor in tensors_of(self._modules)}
        return [tensor for tensor in super()._tensors() if id(tensor) not in patched]


class StructureState(ModuleState):
    """The state of modules without plain attributes: parameters, buffers, submodules, hooks, and train or eval mode.

    Plain attributes keep the objects that the capture assigned; replays overwrite the tensors among these.
    """

    _names = _STRUCTURE

    def key(self) -> Key:
        return (*super().key(), tuple(map(_is_training, self._all())))

    def predicate(self) -> Callable[[], bool]:
        is_unchanged, modules = super().predicate(), self._all()
        modes = list(map(_is_training, modules))
        return lambda: is_unchanged() and list(map(_is_training, modules)) == modes

    def difference(self, before: Key, after: Key) -> str:
        return super().difference(before, after) if before[:4] != after[:4] else "train or eval mode"

    def is_checked(self, value: Any) -> bool:
        """Return whether a value is a module whose state is checked."""
        return any(value is module for module in self._all())

    def _all(self) -> list[nn.Module]:
        return [module for outer in self._modules for module in outer.modules()]


_is_training = attrgetter("training")


class GradState(ModuleState):
    """The state of modules, with grad mode and the `requires_grad` of parameters and buffers."""

    def key(self) -> Key:
        return (*super().key(), torch.is_grad_enabled(), tuple(map(needs_gradient, self._tensors())))

    def predicate(self) -> Callable[[], bool]:
        is_unchanged, is_enabled, enabled = super().predicate(), torch.is_grad_enabled, torch.is_grad_enabled()
        tensors = self._tensors()
        need = list(map(needs_gradient, tensors))
        return lambda: is_unchanged() and is_enabled() is enabled and list(map(needs_gradient, tensors)) == need
