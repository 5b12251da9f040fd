"""The state that a training step changes itself: of the modules that it trains, and of what its optimizer consists of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dynx.cudagraphs._recording.cache import Key
from dynx.cudagraphs._state.assignments import Place, place_of
from dynx.cudagraphs._state.bindings import Bindings
from dynx.cudagraphs._state.code_names import where_assigned
from dynx.cudagraphs._state.module_state import ModuleKey, ModuleState, Used, changes_of


class TrainedState(ModuleState):
    """The state of modules that a training step trains.

    Attributes and elements to which the step itself assigns tensors or other objects keep those of the capture, whose memory
    replays overwrite. They are not checked.
    """

    def is_checked(self, value: Any) -> bool:
        """Return whether a value is a module whose state is checked."""
        return any(value is module for module in self._used().modules)

    def _places(self, used: Used) -> list[Place | None]:
        objects = [place_of(owner, keeps_objects=True, is_shared=True) for owner in used.bindings.objects]
        return [*(Place(attributes, keeps_objects=True) for attributes in used.dicts), *objects]

    def changed_by_call(self, before: Key) -> str:
        """Return a text that names a number, module or setting that a call changed; note where it assigned objects."""
        old, new, used = ModuleKey(*before), ModuleKey(*self.key()), self._used()
        changed = list(changes_of(used, old, new))
        self._skipped |= {change.place for change in changed if change.is_object}
        others = old._replace(attributes=new.attributes, bindings=new.bindings, layouts=new.layouts)
        texts = (change.text for change in changed if not change.is_object)
        return next(texts, "" if others == new else self.difference(others, new))


class StepState(TrainedState):
    """What the `step` of an optimizer reads besides its groups and their state: its attributes, objects in them, names.

    Args:
        optimizer: The optimizer.
        device_type: Device type whose autocast state is checked.
    """

    def __init__(self, optimizer: Any, device_type: str) -> None:
        super().__init__(optimizer.step, device_type)
        self._optimizer = optimizer

    def _used(self) -> Used:
        return Used(Bindings(self._optimizer.step, self._skipped), [])

    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Return the optimizer, and those in it."""
        found = [self._optimizer, *self._used().bindings.optimizers]
        return list({id(optimizer): optimizer for optimizer in found}.values())

    def where_assigned(self, name: str) -> str:
        """Return the line that assigns a name or the element of a dict, in parentheses behind a blank; "" if none does."""
        return where_assigned(name, self._used().bindings.functions)

    def check(self) -> Callable[[], bool] | None:
        """Return a predicate that is true while all of this is unchanged; None if there is nothing that may change."""
        used = self._used()
        return self.predicate() if used.modules else used.bindings.check()

    def _places(self, used: Used) -> list[Place | None]:
        own = (place_of(owner, keeps_objects=True, is_shared=False) for owner in used.bindings.objects)
        return [*(Place(attributes, keeps_objects=True) for attributes in used.dicts), *own]
