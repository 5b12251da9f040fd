"""The state that a recording depends on besides its arguments: modules, their tensors and classes, and settings of torch."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol
from weakref import ref

import torch
from torch import nn

from dynx._torch.ops.fast_checks import hooks_of_all_modules, layout_check
from dynx.cudagraphs._recording.cache import Key
from dynx.cudagraphs._search.bindings import Bindings
from dynx.cudagraphs._search.code_names import functions_of_class, where_assigned
from dynx.cudagraphs._search.identity import (
    class_dicts,
    class_key,
    classes_of,
    has_address,
    holds_tensors,
    identity_of,
    layout_of,
    needs_gradient,
)
from dynx.cudagraphs._search.readers import HOOKS
from dynx.cudagraphs._search.search import Edge
from dynx.cudagraphs._state.assignments import Assignments, Place, place_of
from dynx.cudagraphs._state.comparison import Compared, predicate_of
from dynx.cudagraphs._state.params import tensors_of
from dynx.cudagraphs._state.process_state import modes_of_program, process_key


class State(Protocol):
    """The state that a recording depends on, besides its arguments: it is compared before each replay."""

    def key(self) -> Key:
        """Return a hashable key of the state; equal states have equal keys."""

    def held(self) -> Any:
        """Return the objects whose ids `key` contains: while the caller holds them, no other object gets the same id."""

    def predicate(self) -> Callable[[], bool]:
        """Return a fast predicate that is true while the state is unchanged."""

    def difference(self, before: Key, after: Key) -> str:
        """Return a text for messages that names what differs between two keys."""

    def assignments(self) -> Assignments:
        """Return a snapshot of the attributes, containers and variables that the function may assign to."""
        return Assignments(())

    def begin_capture(self) -> None:
        """Store the unchecked values before a capture, so that `end_capture` finds those that the capture did not assign."""
        return

    def end_capture(self) -> bool:
        """Check from now on the unchecked values that the capture did not assign; return whether there are any."""
        return False

    def changed_by_call(self, before: Key) -> str:
        """Return a text that names what a call changed; "" if nothing. `before` is the key before the call."""
        return self.difference(before, after) if (after := self.key()) != before else ""


class Unchecked(State):
    """The state with `unsafe_skip_checks`: nothing is compared, since the user promises that nothing changes."""

    def key(self) -> Key:
        return ()

    def held(self) -> None:
        return None

    def predicate(self) -> Callable[[], bool]:
        return lambda: True

    def difference(self, before: Key, after: Key) -> str:
        return "nothing"


_DICTS = "__dict__", "_parameters", "_buffers", "_modules", *HOOKS
Attributes = tuple[tuple[str, Hashable], ...]  # names and identities of the values


class ModuleKey(NamedTuple):
    """A hashable key of the state of modules, which is part of the key of a recording."""

    attributes: tuple[Attributes, ...]  # by dictionary
    kinds: tuple[int, ...]  # ids of the classes of the modules
    classes: tuple[Attributes, ...]
    hooks: tuple[Attributes, ...]  # global ones, which run for all modules
    layouts: tuple[Hashable, ...]  # of parameters, buffers and other tensors
    needs_gradient: tuple[bool, ...]  # of these tensors; empty unless the code reads it or gradients are computed
    process: Hashable
    bindings: tuple[tuple[Hashable, ...], ...]  # the values of names that the function reads
    codes: tuple[int, ...]  # ids of the code of its functions


class Used:
    """What a function uses at present: modules, their attributes and tensors, and values that it reads by name."""

    def __init__(self, bindings: Bindings, others: Sequence[nn.Module]) -> None:
        self.bindings, self.outer = bindings, [*bindings.modules, *others]
        self.modules = list(dict.fromkeys(module for outer in self.outer for module in outer.modules()))
        named = ((module, getattr(module, name)) for module in self.modules for name in _DICTS)
        self.owned = [(module, value) for module, value in named if isinstance(value, dict)]  # not those of TorchScript
        self.dicts = [attributes for _, attributes in self.owned]

    def attributes(self) -> list[dict[str, Any]]:
        """Return the dicts of the modules' attributes, without the names that are excluded from checks."""
        skipped = self.bindings.skipped
        if not skipped:
            return self.dicts
        return [{name: value for name, value in d.items() if (id(d), name) not in skipped} for d in self.dicts]

    def tensors(self) -> list[torch.Tensor]:
        """Return parameters and buffers, tensors in attributes of modules, and tensors that the function reads; each once."""
        attributes = (value for d in self.attributes() for value in d.values() if issubclass(type(value), torch.Tensor))
        tensors = [*tensors_of(self.outer), *attributes, *self.bindings.tensors()]
        return list({id(tensor): tensor for tensor in tensors}.values())

    def tensors_of_program(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the tensors whose layouts must be compared: all except parameters and statistics of torch's own layers.

        Torch's layers have many parameters, which programs do not transpose. Tensors that the function names are not left out.
        """
        layers = [module for module in self.modules if type(module).__module__.startswith("torch.")]
        own = {id(param) for layer in layers for param in layer._parameters.values()}
        own |= {id(buffer) for layer in layers if "running_mean" in layer._buffers for buffer in layer._buffers.values()}
        own -= set(map(id, self.bindings.tensors()))
        return [tensor for tensor in tensors if id(tensor) not in own]


class ModuleState(State):
    """What a function depends on: the modules that it uses, their classes, values that it reads by name, torch's settings.

    The state of a module is its attributes and the contents of containers and objects in them, addresses of tensors,
    submodules and hooks. `others` are further modules to check; the autocast state of `device_type` is checked too.
    """

    _keeps_objects, _is_shared = False, True  # see `Place`: what a capture may assign, and whether other threads may do so

    def __init__(self, function: Callable[..., Any], device_type: str, others: Sequence[nn.Module] = ()) -> None:
        self._function, self._device_type = function, device_type
        self._others = [ref(module) for module in others]
        self._skipped: set[Hashable] = set()  # locations that are not checked; see `Bindings`

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
            codes=tuple(map(id, used.bindings.codes())),
        )

    def _attributes(self, used: Used) -> tuple[Attributes, ...]:
        return tuple(map(_attributes_of, used.attributes()))

    def _tensors(self, used: Used) -> list[torch.Tensor]:
        """Return the tensors whose addresses are checked."""
        return used.tensors()

    def _checks_requires_grad(self, used: Used) -> bool:
        return "requires_grad" in used.bindings.names

    def held(self) -> Any:
        used = self._used()
        classes = classes_of(used.modules)
        return [
            *(list(d.values()) for d in (*used.attributes(), *hooks_of_all_modules())),
            *(list(vars(kind).values()) for kind in classes),
            classes,
            modes_of_program(),
            used.bindings.held(),
            used.bindings.codes(),
        ]

    def predicate(self) -> Callable[[], bool]:
        return predicate_of([self.compared()], self._device_type)

    def compared(self) -> Compared:
        """Return the values that must not change before a replay; `predicate` compares them."""
        used = self._used()
        tensors = list(filter(has_address, self._tensors(used)))
        checks = [] if (is_bound := used.bindings.check(set(map(id, used.dicts)))) is None else [is_bound]
        if self._checks_requires_grad(used):
            need = list(map(needs_gradient, tensors))
            checks.append(lambda: list(map(needs_gradient, tensors)) == need)
        if laid_out := used.tensors_of_program(tensors):
            checks.append(partial(layout_check(laid_out), *laid_out))
        return Compared(
            dicts=[*used.dicts, *class_dicts(used.modules), *hooks_of_all_modules()],
            tensors=tensors,
            objects=[*used.modules, *used.bindings.objects],
            functions=used.bindings.functions,
            others=checks,
        )

    def difference(self, before: Key, after: Key) -> str:
        old, new = ModuleKey(*before), ModuleKey(*after)
        used = self._used()
        changes = (change.text for change in changes_of(used, old, new))
        texts = (text for field, text in _TEXTS.items() if getattr(old, field) != getattr(new, field))
        return next(changes, next(texts, "a module"))

    def assignments(self) -> Assignments:
        used, keeps = self._used(), self._keeps_objects
        attributes = [Place(d, keeps_objects=keeps) for d in used.dicts]
        objects = [place_of(owner, keeps_objects=keeps, is_shared=self._is_shared) for owner in used.bindings.objects]
        return Assignments([*attributes, *objects], used.bindings.variables, used.bindings.assigned)


_TEXTS = {  # of the fields of ModuleKey, in the order in which they are compared
    "kinds": "the class of a module",
    "classes": "an attribute or method of a class",
    "hooks": "a global module hook",
    "bindings": "the value of a variable, of an attribute or of an element of a container",
    "layouts": "the address of a parameter",
    "needs_gradient": "requires_grad of a parameter",
    "codes": "the code of a function",
    "process": "autocast, a mode, or another setting of torch",
}


def _attributes_of(d: dict[str, Any]) -> Attributes:
    return tuple((name, identity_of(value)) for name, value in tuple(d.items()))


class PatchedParamsState(ModuleState):
    """The state of modules whose parameters and buffers may be replaced: each call writes their addresses into the graph."""

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
        """Return the tensors whose addresses are checked: all except parameters and buffers, whose addresses are patched."""
        patched = {id(tensor) for tensor in tensors_of(used.outer)}
        return [tensor for tensor in used.tensors() if id(tensor) not in patched]


def _without(values: list[Any], ids: set[int]) -> list[Any]:
    """Return nested lists without the objects that have these ids."""
    return [_without(value, ids) if type(value) is list else value for value in values if id(value) not in ids]


class GradState(ModuleState):
    """The same as ModuleState, and also grad mode and the `requires_grad` of parameters and buffers."""

    def key(self) -> Key:
        return (*super().key(), torch.is_grad_enabled())

    def _checks_requires_grad(self, used: Used) -> bool:
        return True

    def predicate(self) -> Callable[[], bool]:
        is_unchanged, is_enabled, enabled = super().predicate(), torch.is_grad_enabled, torch.is_grad_enabled()
        return lambda: is_unchanged() and is_enabled() is enabled

    def difference(self, before: Key, after: Key) -> str:
        return super().difference(before[:-1], after[:-1]) if before[:-1] != after[:-1] else "grad mode"


def changes_of(used: Used, old: ModuleKey, new: ModuleKey) -> Iterator[Change]:
    """Yield what differs between two keys: attributes of modules, and values that the function reads by name."""
    yield from _changed_attributes(used, old, new)
    yield from _changed_values(used, old, new)


class Change(NamedTuple):
    """An attribute, variable or element of a container whose value differs between two keys (`ModuleKey`)."""

    place: Hashable  # the location, as in `Bindings.skipped`; None if it is not known
    text: str
    is_kept: bool  # whether the new value is a tensor, or holds tensors


def _changed_attributes(used: Used, old: ModuleKey, new: ModuleKey) -> Iterator[Change]:
    for (module, attributes), before, after in zip(used.owned, old.attributes, new.attributes, strict=False):
        for name in sorted({name for name, _ in set(before) ^ set(after)}):
            is_kept = attributes is vars(module) and holds_tensors(attributes.get(name))
            where = where_assigned(name, functions_of_class(type(module)))
            yield Change((id(attributes), name), f"attribute {name} of a {type(module).__name__}{where}", is_kept)


def _changed_values(used: Used, old: ModuleKey, new: ModuleKey) -> Iterator[Change]:
    rows = zip(used.bindings.edges, old.bindings, new.bindings, strict=False)  # in the order of the search
    if len(old.bindings) != len(new.bindings):
        grown = (edge for edge, before, after in rows if before != after and len(old.bindings) < len(new.bindings))
        yield Change(None, next((_text_of(used, edge) for edge in grown), _TEXTS["bindings"]), is_kept=False)
        return
    for edge, before, after in rows:
        if len(before) != len(after):
            yield Change(None, _text_of(used, edge), is_kept=False)
        for index, value in enumerate(edge.values if before != after and len(before) == len(after) else ()):
            if before[index] != after[index]:
                yield Change((edge.owner, edge.name, index), _text_of(used, edge), holds_tensors(value))


def _text_of(used: Used, edge: Edge) -> str:
    """Return how messages name the variable, attribute or element to which `edge` refers.

    Examples: "variable scale (train.py:12 in step)", with a line that assigns it; "an element of a dict (variable cache)".
    """
    if edge.name:
        return f"{edge}{where_assigned(edge.name, used.bindings.functions)}"
    leading = (other for other in used.bindings.edges if other.name and any(id(value) == edge.owner for value in other.values))
    return next((f"{edge} ({other})" for other in leading), str(edge))
