"""The state that a recorded training step depends on besides its arguments."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from operator import is_
from typing import Any, NamedTuple

import torch
from torch import nn

from dynx._torch.autograd.hooks_and_scalers import are_hooked, has_step_hooks
from dynx._torch.ops.cuda_graphs import address_check
from dynx.cudagraphs._recording.cache import Key
from dynx.cudagraphs._state.dict_watch import unchanged
from dynx.cudagraphs._state.module_state import State, TrainedState, layout_of, needs_gradient, snapshot
from dynx.cudagraphs._state.validation import check_optimizer, check_parameters

_are_at = address_check()


class TrainingKey(NamedTuple):
    """A hashable key of the state of a training step: modules, parameters, options, optimizer state."""

    modules: Key
    params: Hashable  # layouts, and which need gradients
    options: tuple[tuple[str, Hashable], ...]  # of the optimizer and the scaler, by name
    optimizer_state: Hashable  # layouts of the tensors


class TrainingState(State):
    """The state of a training step: modules that the loss uses, parameters, options and state of the optimizer.

    Args:
        loss_fn: The loss.
        params: All parameters that were passed to `train_step`.
        optimizer: The optimizer, where this part of a step ends with its step.
        scaler: The gradient scaler.
        others: Modules that own parameters and that are not found from the code of the loss.
        begins: Whether this part of a step is the first, so that gradients are reset.
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

    def key(self) -> Key:
        self._check_hooks()
        return TrainingKey(self._modules.key(), self._params_key(), self._options(), self._optimizer_state_key())

    def _check_hooks(self) -> None:
        """Raise UsageError if a recording cannot train the parameters, for example since a hook was registered."""
        named = [(str(number), param) for number, param in enumerate(self._params) if param.requires_grad]
        check_parameters(named, self._device)
        if self._optimizer is not None:
            check_optimizer(self._optimizer, named, self._scaler)

    def is_checked(self, value: Any) -> bool:
        """Return whether a value is a module whose state is checked."""
        return self._modules.is_checked(value)

    def held(self) -> Any:
        return self._modules.held(), self._optimizer_state(), [list(d.values()) for d in self._states_of_params()]

    def snapshot(self) -> Callable[[], str]:
        return snapshot([d for d in (*self._states_of_params(), *self._groups()) if isinstance(d, dict)])

    def changed_by_call(self, before: Key) -> str:
        old = TrainingKey(*before)
        if what := self._modules.changed_by_call(old.modules):
            return what
        return self._changed(old, self._params_key(), self._options())  # not the optimizer's state: a first step creates it

    def _params_key(self) -> Hashable:
        return tuple((layout_of(param), param.requires_grad) for param in self._params), self._frozen_with_gradients()

    def _frozen_with_gradients(self) -> tuple[bool, ...]:
        """Return for each frozen parameter whether it has a gradient from earlier calls of an accumulated step."""
        return () if self._begins else tuple(param.grad is not None for param in self._params if not param.requires_grad)

    def _optimizer_state(self) -> dict[Any, Any]:
        return {} if self._optimizer is None else self._optimizer.state

    def _states_of_params(self) -> list[dict[str, Any]]:
        return [state for state in self._optimizer_state().values() if isinstance(state, dict)]

    def _groups(self) -> list[dict[str, Any]]:
        return [] if self._optimizer is None else self._optimizer.param_groups

    def _optimizer_state_key(self) -> Hashable:
        if self._optimizer is None:
            return ()
        values = (value for state in self._states_of_params() for value in state.values())
        return id(self._optimizer_state()), *(layout_of(value) for value in values if isinstance(value, torch.Tensor))

    def _options(self) -> tuple[tuple[str, Hashable], ...]:
        """Return options of the optimizer, numbers in its state, and options of the scaler, by name.

        A tensor option is represented by its address, since its value may change in place.
        """
        options: list[tuple[str, Hashable]] = [
            (f"{name} of group {number}", tuple(map(id, value)) if name == "params" else _hashable(value))
            for number, group in enumerate(self._groups())
            for name, value in group.items()
        ]
        options += [
            (f"{name} of parameter {number}", _hashable(value))
            for number, state in enumerate(self._states_of_params())
            for name, value in state.items()
            if value is not None and not isinstance(value, torch.Tensor)
        ]
        return *options, ("the scaler", self._scaler_options())

    def _scaler_options(self) -> tuple[float, ...]:
        scaler = self._scaler
        if scaler is None:
            return ()
        return scaler.get_growth_factor(), scaler.get_backoff_factor(), scaler.get_growth_interval()

    def difference(self, before: Key, after: Key) -> str:
        old, new = TrainingKey(*before), TrainingKey(*after)
        if old.modules != new.modules:
            return self._modules.difference(old.modules, new.modules)
        return self._changed(old, new.params, new.options) or "the optimizer's state"

    def _changed(self, old: TrainingKey, params: Hashable, options: tuple[tuple[str, Hashable], ...]) -> str:
        if old.params != params:
            return "the address of a parameter, or its requires_grad,"
        before = dict(old.options)
        changed = [name for name, value in options if before.get(name, value) != value]  # a first step adds new ones
        more = ", ..." if len(changed) > 3 else ""
        return f"{', '.join(changed[:3])}{more} (a number, not a tensor)" if changed else ""

    def predicate(self) -> Callable[[], bool]:
        is_modules_unchanged, params, scaler = self._modules.predicate(), self._params, self._scaler_options()
        addresses, indices = [param.data_ptr() for param in params], list(range(len(params)))
        need, has_hooks, frozen = list(map(needs_gradient, params)), are_hooked(params), self._frozen_with_gradients()
        optimizer, state, groups = self._optimizer, self._optimizer_state(), self._groups()
        params_of_groups = [list(group["params"]) for group in groups]
        is_unchanged = unchanged([*([] if optimizer is None else [state]), *self._states_of_params(), *groups])

        def is_same() -> bool:
            return (
                is_modules_unchanged()
                and _are_at(params, addresses, indices)
                and list(map(needs_gradient, params)) == need
                and (not frozen or self._frozen_with_gradients() == frozen)
                and (optimizer is None or (optimizer.state is state and optimizer.param_groups is groups))
                and len(groups) == len(params_of_groups)
                and is_unchanged()
                and all(_are_same(group["params"], old) for group, old in zip(groups, params_of_groups, strict=True))
                and self._scaler_options() == scaler
                and not has_hooks()
                and (optimizer is None or not has_step_hooks(optimizer))
            )

        return is_same


def _are_same(objects: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(objects) == len(others) and all(map(is_, objects, others))


def _hashable(value: Any) -> Hashable:
    """Return an optimizer option as text; a tensor as its address and layout, since its value may change in place."""
    return layout_of(value) if isinstance(value, torch.Tensor) else repr(value)
