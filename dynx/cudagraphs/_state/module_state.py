"""The state that a recording depends on besides its arguments: modules, their tensors and classes, and settings of torch."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from operator import attrgetter
from types import FunctionType
from typing import Any, NamedTuple, Protocol
from weakref import ref

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from dynx._torch.ops.cuda_graphs import address_check
from dynx._torch.ops.fast_checks import hooks_of_all_modules
from dynx.cudagraphs._recording.cache import Key
from dynx.cudagraphs._state.bindings import Bindings
from dynx.cudagraphs._state.class_state import class_dicts, class_key, classes_of
from dynx.cudagraphs._state.dict_watch import unchanged
from dynx.cudagraphs._state.held_tensors import snapshot_of_tensors
from dynx.cudagraphs._state.identity import PLAIN, identity_of
from dynx.cudagraphs._state.params import tensors_of
from dynx.cudagraphs._state.process_state import process_check, process_key

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


def all_of(checks: Sequence[Callable[[], bool]]) -> Callable[[], bool]:
    """Return a predicate that is true while all of one to three predicates are, without the loop: it runs in each call."""
    if len(checks) == 1:
        return checks[0]
    first, second, *others = checks
    if not others:
        return lambda: first() and second()
    (third,) = others
    return lambda: first() and second() and third()


_DICTS = (
    "__dict__",
    "_parameters",
    "_buffers",
    "_modules",
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)
Attributes = tuple[tuple[str, Hashable], ...]  # names and identities of the values


class ModuleKey(NamedTuple):
    """A hashable key of the state of modules, which is part of the key of a recording."""

    attributes: tuple[Attributes, ...]  # by dictionary
    kinds: tuple[int, ...]  # ids of the classes of the modules
    classes: tuple[Attributes, ...]
    hooks: tuple[Attributes, ...]  # of all modules
    layouts: tuple[Hashable, ...]  # of parameters, buffers and other tensors
    needs_gradient: tuple[bool, ...]  # of these tensors, where the code reads it or gradients are computed
    process: Hashable
    bindings: tuple[tuple[Hashable, ...], ...]  # the values of names that the function reads


class Used:
    """What a function uses at a time: the modules, their attributes and tensors, and the values of names."""

    def __init__(self, bindings: Bindings, others: Sequence[nn.Module]) -> None:
        self.bindings, self.outer = bindings, [*bindings.modules, *others]
        self.modules = list(dict.fromkeys(module for outer in self.outer for module in outer.modules()))
        named = ((module, getattr(module, name)) for module in self.modules for name in _DICTS)
        self.owned = [(module, value) for module, value in named if isinstance(value, dict)]  # not those of TorchScript
        self.dicts = [attributes for _, attributes in self.owned]

    def attributes(self) -> list[dict[str, Any]]:
        """Return the names and values of the attributes of modules that are checked, by dictionary."""
        skipped = self.bindings.skipped
        if not skipped:
            return self.dicts
        return [{name: value for name, value in d.items() if (id(d), name) not in skipped} for d in self.dicts]

    def tensors(self) -> list[torch.Tensor]:
        """Return the tensors of modules, of their attributes, and those that the function names; each once."""
        attributes = (value for d in self.attributes() for value in d.values() if issubclass(type(value), torch.Tensor))
        tensors = [*tensors_of(self.outer), *attributes, *self.bindings.tensors()]
        return list({id(tensor): tensor for tensor in tensors}.values())


class ModuleState(State):
    """The state of the modules that a function uses, of their classes, of names that it reads, and of settings of torch.

    Of modules: attributes and what containers and objects in them hold, addresses of tensors, submodules, hooks.

    Args:
        function: The function that uses the modules.
        device_type: Device type whose autocast state is checked.
        others: Modules that are checked too.
    """

    def __init__(self, function: Callable[..., Any], device_type: str, others: Sequence[nn.Module] = ()) -> None:
        self._function, self._device_type = function, device_type
        self._others = [ref(module) for module in others]
        self._skipped: set[Hashable] = set()  # places whose values are not checked: ids of their dicts or owners, and names

    def _used(self) -> Used:
        others = [reference() for reference in self._others]
        return Used(Bindings(self._function, self._skipped), [module for module in others if module is not None])

    def key(self) -> Key:
        used = self._used()
        tensors = self._tensors(used)
        return ModuleKey(
            attributes=self._attributes(used),
            kinds=tuple(id(type(module)) for module in used.modules),
            classes=tuple(map(class_key, classes_of(used.modules))),
            hooks=tuple(map(_attributes_of, hooks_of_all_modules())),
            layouts=tuple(map(layout_of, tensors)),
            needs_gradient=tuple(map(needs_gradient, tensors)) if self._checks_requires_grad(used) else (),
            process=process_key(self._device_type),
            bindings=used.bindings.key(),
        )

    def _attributes(self, used: Used) -> tuple[Attributes, ...]:
        return tuple(map(_attributes_of, used.attributes()))

    def _tensors(self, used: Used) -> list[torch.Tensor]:
        """Return the tensors whose addresses are checked."""
        return used.tensors()

    def _checks_requires_grad(self, used: Used) -> bool:
        return used.bindings.reads_attribute("requires_grad")

    def held(self) -> Any:
        used = self._used()
        classes = classes_of(used.modules)
        return [
            *(list(d.values()) for d in (*used.attributes(), *hooks_of_all_modules())),
            *(list(vars(kind).values()) for kind in classes),
            classes,
            used.bindings.held(),
        ]

    def predicate(self) -> Callable[[], bool]:
        used = self._used()
        is_unchanged = unchanged([*used.dicts, *class_dicts(used.modules), *hooks_of_all_modules()])
        is_bound, process = used.bindings.check(), process_check(self._device_type, used.modules)
        has_settings, has_classes, is_equal = process
        tensors = list(filter(has_address, self._tensors(used)))
        addresses, indices = [tensor.data_ptr() for tensor in tensors], list(range(len(tensors)))

        def is_same() -> bool:
            if not (is_unchanged() and _are_at(tensors, addresses, indices)):
                return False
            return (has_settings() and has_classes()) or is_equal()

        checks = [is_same] if is_bound is None else [is_same, is_bound]
        if self._checks_requires_grad(used):
            need = list(map(needs_gradient, tensors))
            checks.append(lambda: list(map(needs_gradient, tensors)) == need)
        return all_of(checks)

    def difference(self, before: Key, after: Key) -> str:
        old, new = ModuleKey(*before), ModuleKey(*after)
        used = self._used()
        changes = (change.text for change in (*_changed_attributes(used, old, new), *_changed_values(used, old, new)))
        texts = (text for field, text in _TEXTS.items() if getattr(old, field) != getattr(new, field))
        return next(changes, next(texts, "a module"))

    def snapshot(self) -> Callable[[], str]:
        used = self._used()
        restores = snapshot(used.dicts), snapshot_of_tensors(used.bindings.objects)
        return lambda: ", ".join(filter(None, [restore() for restore in restores]))


_TEXTS = {  # in the order in which they are named
    "kinds": "the class of a module",
    "classes": "an attribute or method of a class",
    "hooks": "a hook of all modules",
    "bindings": "the value of a variable, of an attribute or of an element of a container",
    "layouts": "the address of a parameter",
    "needs_gradient": "requires_grad of a parameter",
    "process": "autocast, or another setting of torch",
}


def _attributes_of(d: dict[str, Any]) -> Attributes:
    return tuple((name, identity_of(value)) for name, value in tuple(d.items()))


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


class PatchedParamsState(ModuleState):
    """The state of modules whose parameters and buffers may be replaced, since the pointers to them are patched."""

    def _attributes(self, used: Used) -> tuple[Attributes, ...]:
        numbers = {id(tensor): number for number, tensor in enumerate(tensors_of(used.outer))}
        return tuple(
            tuple((name, -1 - numbers[id(value)] if id(value) in numbers else identity_of(value)) for name, value in d.items())
            for d in used.dicts
        )

    def held(self) -> Any:
        patched = {id(tensor) for tensor in tensors_of(self._used().outer)}
        return _without(super().held(), patched)

    def _tensors(self, used: Used) -> list[torch.Tensor]:
        """Return the tensors whose addresses are checked, as in other states but without those that are patched."""
        patched = {id(tensor) for tensor in tensors_of(used.outer)}
        return [tensor for tensor in used.tensors() if id(tensor) not in patched]


def _without(values: list[Any], ids: set[int]) -> list[Any]:
    """Return nested lists without the objects that have these ids."""
    return [_without(value, ids) if type(value) is list else value for value in values if id(value) not in ids]


class GradState(ModuleState):
    """The state of modules, with grad mode and the `requires_grad` of parameters and buffers."""

    def key(self) -> Key:
        return (*super().key(), torch.is_grad_enabled())

    def _checks_requires_grad(self, used: Used) -> bool:
        return True

    def predicate(self) -> Callable[[], bool]:
        is_unchanged, is_enabled, enabled = super().predicate(), torch.is_grad_enabled, torch.is_grad_enabled()
        return lambda: is_unchanged() and is_enabled() is enabled

    def difference(self, before: Key, after: Key) -> str:
        return super().difference(before[:-1], after[:-1]) if before[:-1] != after[:-1] else "grad mode"


class TrainedState(ModuleState):
    """The state of modules that a training step trains.

    Attributes and elements to which the step itself assigns tensors or other objects keep those of the capture, whose memory
    replays overwrite. They are not checked.
    """

    def is_checked(self, value: Any) -> bool:
        """Return whether a value is a module whose state is checked."""
        return any(value is module for module in self._used().modules)

    def changed_by_call(self, before: Key) -> str:
        """Return a text that names a number, module or setting that a call changed; note where it assigned objects."""
        old, new, used = ModuleKey(*before), ModuleKey(*self.key()), self._used()
        changed = [*_changed_attributes(used, old, new), *_changed_values(used, old, new)]
        self._skipped |= {change.place for change in changed if change.is_object}
        others = old._replace(attributes=new.attributes, bindings=new.bindings, layouts=new.layouts)
        texts = (change.text for change in changed if not change.is_object)
        return next(texts, "" if others == new else self.difference(others, new))


class _Change(NamedTuple):
    """A difference between two keys."""

    place: Hashable
    text: str
    is_object: bool  # whether an object that is no module and no function was assigned there


def _changed_attributes(used: Used, old: ModuleKey, new: ModuleKey) -> Iterator[_Change]:
    for (module, attributes), before, after in zip(used.owned, old.attributes, new.attributes, strict=False):
        for name in sorted({name for name, _ in set(before) ^ set(after)}):
            is_object = attributes is vars(module) and _is_object(attributes.get(name))
            yield _Change((id(attributes), name), f"attribute {name} of a {type(module).__name__}", is_object)


def _changed_values(used: Used, old: ModuleKey, new: ModuleKey) -> Iterator[_Change]:
    if len(old.bindings) != len(new.bindings):
        yield _Change(None, _TEXTS["bindings"], is_object=False)
        return
    for edge, before, after in zip(used.bindings.edges, old.bindings, new.bindings, strict=True):
        if len(before) != len(after):
            yield _Change(None, _TEXTS["bindings"], is_object=False)
        for index, value in enumerate(edge.values if before != after and len(before) == len(after) else ()):
            if before[index] != after[index]:
                yield _Change((edge.owner, edge.name, index), str(edge), _is_object(value))


def _is_object(value: Any) -> bool:
    return not (type(value) in PLAIN or issubclass(type(value), (nn.Module, FunctionType, type)))
