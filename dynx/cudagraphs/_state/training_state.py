"""The state that a recorded training step depends on besides its arguments."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from dynx._torch.autograd.hooks_and_scalers import gradient_hooks_check
from dynx.cudagraphs._recording.cache import Key
from dynx.cudagraphs._search.identity import layout_of, needs_gradient
from dynx.cudagraphs._search.optimizers import Optimizers, containers_of, dicts_of
from dynx.cudagraphs._state import optimizer_state
from dynx.cudagraphs._state.assignments import Assignments, Place
from dynx.cudagraphs._state.comparison import Compared, predicate_of
from dynx.cudagraphs._state.module_state import State
from dynx.cudagraphs._state.trained_state import StepState, TrainedState
from dynx.cudagraphs._state.validation import check_optimizer, check_parameters


class TrainingKey(NamedTuple):
    """A hashable key of the state of a training step: modules, parameters, options, optimizer state."""

    modules: Key
    step: Key  # what the optimizer's step reads besides groups and state
    params: Hashable  # layouts, and which need gradients
    options: tuple[tuple[str, Hashable], ...]  # of the optimizers and the scaler, by name
    optimizer_state: Hashable  # layouts of the tensors


class TrainingState(State):
    """The state of a training step: the modules that the loss uses, the parameters, the optimizer and the scaler.

    A step may accumulate gradients over several calls. The first call resets gradients: then `begins` is True. Only the last
    call has an `optimizer`, else it is None. `others` are modules that own parameters, but are not named in the loss.
    """

    def __init__(
        self,
        loss_fn: Callable[..., Any],
        params: Sequence[torch.Tensor],
        optimizer: torch.optim.Optimizer | None,
        scaler: torch.amp.GradScaler | None,
        others: Sequence[nn.Module],
        *,
        begins: bool,
    ) -> None:
        self._begins = begins
        self._params, self._optimizer, self._scaler = params, optimizer, scaler
        self._device = next((param.device for param in params if param.requires_grad), params[0].device)
        self._modules = TrainedState(loss_fn, self._device.type, others)
        self._step = None if optimizer is None else StepState(optimizer, self._device.type)

    def _optimizers(self) -> Optimizers:
        return [] if self._step is None else self._step.optimizers()

    def key(self) -> Key:
        optimizers = self._optimizers()
        self._check_hooks(optimizers)
        step = () if self._step is None else self._step.key()
        state = optimizer_state.layouts_of(optimizers)
        return TrainingKey(self._modules.key(), step, self._params_key(), self._options(optimizers), state)

    def _check_hooks(self, optimizers: Optimizers) -> None:
        """Raise UsageError if a replay could not train the parameters, for example since a hook was registered."""
        named = [(str(number), param) for number, param in enumerate(self._params) if param.requires_grad]
        check_parameters(named, self._device)
        for optimizer in optimizers:
            is_outer = optimizer is self._optimizer
            check_optimizer(optimizer, named if is_outer else None, self._scaler if is_outer else None)

    def is_checked(self, value: Any) -> bool:
        """Return whether a value is a module whose state is compared before each replay."""
        return self._modules.is_checked(value)

    def held(self) -> Any:
        values = [list(d.values()) for d in dicts_of(self._optimizers())]
        values.append([step for optimizer in self._optimizers() for step in optimizer_state.step_of(optimizer)])
        return self._modules.held(), [] if self._step is None else self._step.held(), values

    def assignments(self) -> Assignments:
        own = Assignments(map(Place, containers_of(self._optimizers())))
        return own.and_of([state.assignments() for state in self._parts()])

    def begin_capture(self) -> None:
        for state in self._parts():
            state.begin_capture()

    def end_capture(self) -> bool:
        has_more = [state.end_capture() for state in self._parts()]
        return any(has_more)

    def _parts(self) -> list[TrainedState]:
        return [state for state in (self._modules, self._step) if state is not None]

    def changed_by_call(self, before: Key) -> str:
        old, optimizers = TrainingKey(*before), self._optimizers()
        states = (self._modules, old.modules), (self._step, old.step)
        changed = [state.changed_by_call(key) for state, key in states if state is not None]
        changed.append(self._changed(old, self._params_key(), self._options(optimizers)))  # a first step creates state
        return next(filter(None, changed), "")

    def _params_key(self) -> Hashable:
        return tuple((layout_of(param), param.requires_grad) for param in self._params), self._frozen_with_gradients()

    def _frozen_with_gradients(self) -> tuple[bool, ...]:
        """Return for each frozen parameter whether it has a gradient from earlier calls of an accumulated step."""
        return () if self._begins else tuple(param.grad is not None for param in self._params if not param.requires_grad)

    def _options(self, optimizers: Optimizers) -> tuple[tuple[str, Hashable], ...]:
        return *optimizer_state.options_of(optimizers), ("the scaler", self._scaler_options())

    def _scaler_options(self) -> tuple[float, ...]:
        scaler = self._scaler
        if scaler is None:
            return ()
        return scaler.get_growth_factor(), scaler.get_backoff_factor(), scaler.get_growth_interval()

    def difference(self, before: Key, after: Key) -> str:
        old, new = TrainingKey(*before), TrainingKey(*after)
        if old.modules != new.modules:
            return self._modules.difference(old.modules, new.modules)
        if self._step is not None and old.step != new.step:
            return self._step.difference(old.step, new.step)
        return self._changed(old, new.params, new.options) or "the optimizer's state"

    def _changed(self, old: TrainingKey, params: Hashable, options: tuple[tuple[str, Hashable], ...]) -> str:
        if old.params != params:
            return "the address or requires_grad of a parameter"
        before = dict(old.options)
        all_changed = {name: value for name, value in options if before.get(name, value) != value}  # a first step adds options
        if not all_changed:
            return ""
        changed, more = list(all_changed), ", ..." if len(all_changed) > 3 else ""
        is_number = any(isinstance(value, str) for value in all_changed.values())
        where = "" if self._step is None else self._step.where_assigned(changed[0].partition(" of ")[0])
        return f"{', '.join(changed[:3])}{more} ({'a number, not a tensor' if is_number else 'another object'}){where}"

    def predicate(self) -> Callable[[], bool]:
        parts, optimizers = [self._own(), *(state.compared() for state in self._parts())], self._optimizers()
        return predicate_of([*parts, optimizer_state.compared(optimizers)] if optimizers else parts, self._device.type)

    def _own(self) -> Compared:
        """Return what must not change before a replay besides modules and optimizers: the parameters and the scaler."""
        params, need, has_hooks = self._params, list(map(needs_gradient, self._params)), gradient_hooks_check(self._params)
        checks = [lambda: list(map(needs_gradient, params)) == need and not has_hooks()]
        if frozen := self._frozen_with_gradients():
            checks.append(lambda: self._frozen_with_gradients() == frozen)
        if scaler := self._scaler_options():
            checks.append(lambda: self._scaler_options() == scaler)
        return Compared(tensors=params, others=checks)
