"""The state of the modules and the optimizer of a training step, parts of which the step itself changes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import torch

from dynx.cudagraphs._recording.cache import Key
from dynx.cudagraphs._search.bindings import Bindings
from dynx.cudagraphs._search.code_names import where_assigned
from dynx.cudagraphs._state.module_state import ModuleKey, ModuleState, Used, changes_of


class TrainedState(ModuleState):
    """The state of modules that a training step trains.

    Each step may assign tensors, or objects that hold tensors, to attributes of modules and elements of containers. Such
    attributes and elements are not checked: they keep the tensors of the capture, whose memory replays overwrite. Those that
    only the first step assigned are checked like everything else.
    """

    _keeps_objects = True
    _before_capture: Mapping[Hashable, Any] = {}  # the values that are not checked, by location

    def is_checked(self, value: Any) -> bool:
        """Return whether a value is a module whose state is compared before each replay."""
        return any(value is module for module in self._used().modules)

    def begin_capture(self) -> None:
        self._before_capture = self._unchecked_values()

    def end_capture(self) -> bool:
        before, now = self._before_capture, self._unchecked_values()
        unassigned = {place for place, value in now.items() if before.get(place, now) is value}
        self._skipped -= unassigned
        self._before_capture = {}
        return bool(unassigned)

    def _unchecked_values(self) -> dict[Hashable, Any]:
        if not self._skipped:
            return {}
        skipped, self._skipped = self._skipped, set()
        try:
            used = self._used()
        finally:
            self._skipped = skipped
        edges = used.bindings.edges
        found: dict[Hashable, Any] = {(id(d), name): value for d in used.dicts for name, value in d.items()}
        found |= {(edge.owner, edge.name, index): value for edge in edges for index, value in enumerate(edge.values)}
        return {place: found[place] for place in skipped if place in found}

    def changed_by_call(self, before: Key) -> str:
        """Return the name of a number, module or setting that a call changed; "" if there is none.

        Attributes and elements to which the call assigned a tensor, or an object with tensors, are not checked later.
        """
        old, new, used = ModuleKey(*before), ModuleKey(*self.key()), self._used()
        changed = list(changes_of(used, old, new))
        self._skipped |= {change.place for change in changed if change.is_kept}
        others = old._replace(attributes=new.attributes, bindings=new.bindings, layouts=new.layouts)
        texts = (change.text for change in changed if not change.is_kept)
        return next(texts, "" if others == new else self.difference(others, new))


class StepState(TrainedState):
    """What an optimizer's `step` reads besides `param_groups` and `state`: other attributes, and values read by name."""

    _is_shared = False

    def __init__(self, optimizer: Any, device_type: str) -> None:
        super().__init__(optimizer.step, device_type)
        self._optimizer = optimizer

    def _used(self) -> Used:
        return Used(Bindings(self._optimizer.step, self._skipped), [])

    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Return the optimizer, and the optimizers that its `step` uses."""
        found = [self._optimizer, *self._used().bindings.optimizers]
        return list({id(optimizer): optimizer for optimizer in found}.values())

    def where_assigned(self, name: str) -> str:
        """Return the line of `step` that assigns a name or dict item, as " (file:line in function)"; "" if there is none."""
        return where_assigned(name, self._used().bindings.functions)
