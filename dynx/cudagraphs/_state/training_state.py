"""What a training step depends on besides its arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from typing import Any

import torch
from torch import nn

from dynx._torch.autograd.hooks_and_scalers import are_hooked, has_step_hooks
from dynx._torch.ops.cuda_graphs import address_check
from dynx.cudagraphs._recording.cache import Key
from dynx.cudagraphs._state.dict_watch import unchanged
from dynx.cudagraphs._state.module_state import State, Structure, needs_gradient, place_of, undoing
from dynx.cudagraphs._state.validation import check_optimizer, check_parameters

_are_at = address_check()


class TrainingState(State):
    """The modules that a loss uses, where parameters lie and which of them are trained, and what an optimizer goes by."""

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
        self._device = next((each.device for each in params if each.requires_grad), params[0].device)
        self._inside = Structure(loss_fn, self._device.type, others)

    def key(self) -> Key:
        self._refuse()
        return self._inside.key(), self._given(), self._numbers(), self._places()

    def _refuse(self) -> None:
        """Raise UsageError for hooks that were registered since."""
        named = [(str(number), each) for number, each in enumerate(self._params) if each.requires_grad]
        check_parameters(named, self._device)
        if self._optimizer is not None:
            check_optimizer(self._optimizer, named, self._scaler)

    def covers(self, value: Any) -> bool:
        return self._inside.covers(value)

    def held(self) -> Any:
        return self._inside.held(), self._state(), [list(each.values()) for each in self._of_parameters()]

    def undoing(self) -> Callable[[], str]:
        return undoing([each for each in (*self._of_parameters(), *self._groups()) if isinstance(each, dict)])

    def changed_itself(self, before: Key) -> str:
        if inside := self._inside.changed_itself(before[0]):
            return inside
        now = self._given(), self._numbers()
        return self._named(before[1:3], now)  # not where its state lies, which a first step makes

    def _given(self) -> Key:
        return tuple((place_of(each), each.requires_grad) for each in self._params), self._left()

    def _left(self) -> tuple[bool, ...]:
        """Tell which parameters that were frozen in the middle of a step have gradients of it."""
        return () if self._begins else tuple(each.grad is not None for each in self._params if not each.requires_grad)

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
        return id(self._state()), *(place_of(value) for value in kept if isinstance(value, torch.Tensor))

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
        if one[0] != other[0]:
            return self._inside.difference(one[0], other[0])
        return self._named(one[1:], other[1:]) or "the optimizer's state"

    def _named(self, one: Key, other: Key) -> str:
        if one[0] != other[0]:
            return "where a parameter lies, or whether it is trained,"
        before = dict(one[1])
        changed = [name for name, value in other[1] if before.get(name, value) != value]  # a first step makes new ones
        more = ", ..." if len(changed) > 3 else ""
        return f"{', '.join(changed[:3])}{more} (a tensor may change)" if changed else ""

    def check(self) -> Callable[[], bool]:
        are_alike, params, scaler = self._inside.check(), self._params, self._of_scaler()
        addresses, all_of_them = [each.data_ptr() for each in params], list(range(len(params)))
        need, has_hooks, left = list(map(needs_gradient, params)), are_hooked(params), self._left()
        optimizer, state, groups = self._optimizer, self._state(), self._groups()
        given = [list(group["params"]) for group in groups]
        is_unchanged = unchanged([*([] if optimizer is None else [state]), *self._of_parameters(), *groups])

        def is_same() -> bool:
            return (
                are_alike()
                and _are_at(params, addresses, all_of_them)
                and list(map(needs_gradient, params)) == need
                and (not left or self._left() == left)
                and (optimizer is None or (optimizer.state is state and optimizer.param_groups is groups))
                and len(groups) == len(given)
                and is_unchanged()
                and all(_are_same(group["params"], each) for group, each in zip(groups, given, strict=True))
                and self._of_scaler() == scaler
                and not has_hooks()
                and (optimizer is None or not has_step_hooks(optimizer))
            )

        return is_same


def _are_same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(some) == len(others) and all(map(is_, some, others))


def _known(value: Any) -> Any:
    """Give a number as it is, and a tensor, whose value may change, by its address."""
    return place_of(value) if isinstance(value, torch.Tensor) else repr(value)
