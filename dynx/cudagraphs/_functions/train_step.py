"""A whole training step in one recording."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter, is_
from typing import Any, Protocol

import torch
from torch import nn
from torch.utils._pytree import tree_map

from dynx._torch.autograd.engine import renew_accumulators
from dynx._torch.autograd.hooks_and_scalers import forget_stages
from dynx._torch.ops import foreach
from dynx.cudagraphs._config import Config, config_or_default
from dynx.cudagraphs._functions.autograd_tape import stranger
from dynx.cudagraphs._functions.recorded_function import Recorded
from dynx.cudagraphs._recording.recording import Recording
from dynx.cudagraphs._runtime.select import check_bindings, runtime_of
from dynx.cudagraphs._state.code_names import signature_of
from dynx.cudagraphs._state.find_modules import modules_of, owners_of
from dynx.cudagraphs._state.module_state import Frozen, State
from dynx.cudagraphs._state.training_state import TrainingState
from dynx.cudagraphs._state.validation import (
    check_examples,
    check_for_training,
    check_numbers,
    check_optimizer,
    check_parameters,
    check_wrappers,
    named_of,
)
from dynx.errors import CaptureFailed, UsageError


def train_step(
    loss_fn: Callable[..., Any],
    params: Iterable[torch.Tensor] | Iterable[tuple[str, torch.Tensor]],
    *examples: Any,
    optimizer: torch.optim.Optimizer | None = None,
    scaler: torch.amp.GradScaler | None = None,
    clip_grad_norm: float | None = None,
    accumulate: int = 1,
    frozen: bool = False,
    config: Config | None = None,
) -> TrainStep:
    """Make a function that does a training step: gradients set to nothing, `loss_fn`, backward, clipping, optimizer.

    What it is called with goes to `loss_fn`, which gives a loss (a tensor of one element) or a tuple that begins with one; that
    is what a step gives, detached. The first call with a layout of arguments does its step as it is, the second records, later
    ones replay: all of them are steps of the training, none is spent on warming up. `examples` are looked at, not trained on.

    With `accumulate=n` gradients add up over n calls, and the last of them steps the optimizer; divide the loss by n yourself.
    `clip_grad_norm` is the norm that gradients are clipped to. A `scaler` needs an optimizer with `fused=True`. Without an
    optimizer a call leaves the gradients in `.grad`, in the recording's memory.

    Each call checks the modules that the loss uses, where the parameters lie and which are trained, and the optimizer's groups,
    numbers and state; with `frozen` you promise that they stay, and that nobody sets `.grad`. Attributes of modules that are no
    parameters, buffers or modules are as in the recording, and what the loss assigns to one cannot be read there: have it give
    that. A learning rate that changes should be a tensor: a number that changes needs another recording. With `accumulate`
    parameters that no part of a step uses have gradients of zeros.

    Raises UsageError for what cannot be recorded, by name: DDP, FSDP, hooks on gradients or steps, optimizers that read values,
    gradients of tensors that are not among the parameters.

    >>> import torch
    >>> from dynx import cudagraphs
    >>> model = torch.nn.Linear(2, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> loss_fn = lambda x: model(x).square().mean()
    >>> config = cudagraphs.Config(runtime="emulator")
    >>> step = cudagraphs.train_step(loss_fn, model.parameters(), optimizer=optimizer, config=config)
    >>> losses = [step(torch.ones(4, 2)).item() for _ in range(5)]
    >>> losses == sorted(losses, reverse=True)
    True
    """
    check_numbers(accumulate, clip_grad_norm)
    if scaler is not None and not scaler.is_enabled():
        scaler = None
    if scaler is not None and optimizer is None:
        raise UsageError("a scaler needs an optimizer\n  give optimizer=")
    config = config_or_default(config)
    check_for_training(config)
    runtime = runtime_of(config)
    check_bindings(config, runtime)
    all_of_them = named_of(params)
    given, named = [each for _, each in all_of_them], [(name, each) for name, each in all_of_them if each.requires_grad]
    check_examples(examples, None if runtime is None else runtime.device)
    if runtime is not None:
        check_parameters(named, runtime.device)
        check_wrappers(named)
    if optimizer is not None:
        check_optimizer(optimizer, named, scaler, accumulate)
    inner = torch.compile(loss_fn) if config.inner == "inductor" else loss_fn
    work = _Work(inner, given, optimizer, scaler, clip_grad_norm, keeps=accumulate > 1)
    known = {id(one) for each in modules_of(loss_fn) for one in each.parameters()}
    others = [] if frozen else owners_of([each for each in given if id(each) not in known])
    kinds = [(number == 0, number == accumulate - 1) for number in range(accumulate)]

    def state(begins: bool, ends: bool) -> State:
        if frozen:
            return Frozen()
        return TrainingState(loss_fn, given, optimizer if ends else None, scaler, others, begins=begins)

    parts = {kind: _recorded(work, *kind, config=config, runtime=runtime, state=state(*kind)) for kind in dict.fromkeys(kinds)}
    return parts[kinds[0]] if accumulate == 1 else _InTurn([parts[kind] for kind in kinds], work, is_checked=not frozen)


class TrainStep(Protocol):
    """Does a step, or with `accumulate` a part of one, each time it is called."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Give what the loss function gives, detached."""

    def close(self) -> None:
        """Give back the memory of the recordings; the next calls record anew."""

    @property
    def recordings(self) -> list[Any]:
        """Give what has been recorded."""


class _InTurn:
    def __init__(self, parts: Sequence[Recorded], work: _Work, *, is_checked: bool) -> None:
        self._parts, self._work, self._is_checked = parts, work, is_checked
        self._next = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._next > 0 and self._is_checked:
            self._work.take_gradients()
        part = self._parts[self._next]
        result = part(*args, **kwargs)
        self._next = (self._next + 1) % len(self._parts)
        return result

    @property
    def recordings(self) -> list[Any]:
        return [recording for each in dict.fromkeys(self._parts) for recording in each.recordings]

    def close(self) -> None:
        for each in dict.fromkeys(self._parts):
            each.close()


class _Work:
    """What a step does."""

    def __init__(
        self,
        loss_fn: Callable[..., Any],
        params: list[torch.Tensor],
        optimizer: torch.optim.Optimizer | None,
        scaler: torch.amp.GradScaler | None,
        clip: float | None,
        *,
        keeps: bool,
    ) -> None:
        self.loss_fn, self.params, self.optimizer, self.scaler, self.clip = loss_fn, params, optimizer, scaler, clip
        self._keeps = keeps  # gradients have memory of their own, which parts of a step share
        self._memory: list[torch.Tensor | None] = [None] * len(params)

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, begins: bool, ends: bool) -> Any:
        self._begin(begins)
        with torch.enable_grad():
            result = self.loss_fn(*args, **kwargs)
            loss = _loss_of(result)
            _check_leaves(loss, self.params)
            (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        if ends and self.optimizer is not None:
            self._end(self.optimizer)
        elif ends and self.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.params, self.clip)
        return tree_map(lambda each: each.detach() if isinstance(each, torch.Tensor) else each, result)

    def _begin(self, begins: bool) -> None:
        if not self._keeps:
            put_gradients(self.params, [None] * len(self.params))
            return
        self._memory = [
            torch.zeros_like(each) if each.requires_grad and not _is_like(kept, each) else kept
            for each, kept in zip(self.params, self._memory, strict=True)
        ]
        if begins:  # all: those of frozen parameters are zeros when these are thawed
            foreach.zero_all([each for each in self._memory if each is not None])
        is_kept = [each.requires_grad or (not begins and each.grad is not None) for each in self.params]
        put_gradients(self.params, [each if kept else None for each, kept in zip(self._memory, is_kept, strict=True)])

    def take_gradients(self) -> None:
        """Have the gradients so far be those that somebody has set in the middle of a step."""
        with torch.no_grad():
            for each, memory in zip(self.gradients(), self._memory, strict=True):
                if memory is not None and each is not memory:
                    memory.copy_(each) if each is not None else memory.zero_()

    def _end(self, optimizer: torch.optim.Optimizer) -> None:
        if self.clip is not None:
            if self.scaler is not None:
                self.scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(self.params, self.clip)
        try:
            if self.scaler is None:
                optimizer.step()
            else:
                self.scaler.step(optimizer)
                self.scaler.update()
        except CaptureFailed as error:
            kind, (reason, *_) = type(optimizer).__name__, str(error).splitlines()
            raise CaptureFailed(f"the step of {kind}: {reason}\n  make it with fused=True, or capturable=True") from None

    def gradients(self) -> list[torch.Tensor | None]:
        return [each.grad for each in self.params]


def put_gradients(params: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor | None]) -> None:
    if all(map(is_, map(_gradient, params), gradients)):  # asking takes a fraction of setting
        return
    for each, gradient in zip(params, gradients, strict=True):
        each.grad = gradient


_gradient = attrgetter("grad")


def _is_like(gradient: torch.Tensor | None, parameter: torch.Tensor) -> bool:
    return gradient is not None and (gradient.size(), gradient.dtype) == (parameter.size(), parameter.dtype)


def _check_leaves(loss: torch.Tensor, params: Sequence[torch.Tensor]) -> None:
    """Refuse a loss that has gradients for others than `params`: they would be added where `.grad` was at the recording."""
    if (size := stranger([loss], params)) is not None:
        raise UsageError(
            f"the loss has a gradient for a tensor of size {size} that is not among the parameters\n"
            "  give it too, or detach it, or set requires_grad to False"
        )


def _loss_of(result: Any) -> torch.Tensor:
    loss = result[0] if isinstance(result, (tuple, list)) and result else result
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        given = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else f"a {type(loss).__name__}"
        raise UsageError(
            f"the loss is {given}, not a tensor of one element\n  give a mean or a sum, first where there are several"
        )
    return loss


def _is_module(value: Any) -> bool:
    return isinstance(value, nn.Module)


class _Uncopied:
    """Stands for a step where that is copied, or pickled."""

    def __reduce__(self) -> Any:
        raise UsageError(
            "a training step belongs to the parameters and the optimizer that it was made with, and cannot be copied\n"
            "  make another with train_step for the copy"
        )


def _recorded(work: _Work, begins: bool, ends: bool, *, config: Config, runtime: Any, state: Any) -> Recorded:
    def run(*args: Any, **kwargs: Any) -> Any:
        before = work.gradients()
        try:
            return work(args, kwargs, begins=begins, ends=ends)
        except BaseException:
            put_gradients(work.params, before)
            if work.scaler is not None:
                forget_stages(work.scaler)
            raise

    run.__signature__ = signature_of(work.loss_fn)  # type: ignore[attr-defined]
    recorded = Recorded(run, "step", "the training step", config, runtime, state)
    recorded.also = work.gradients
    recorded.covers = state.covers if isinstance(state, TrainingState) else _is_module
    recorded.original = _Uncopied()

    def make(*given: Any) -> Recording:
        renew_accumulators([each for each in work.params if each.requires_grad])
        return Recording(*given)

    recorded.make = make

    def show(recording: Recording) -> None:
        put_gradients(work.params, recording.also)

    if not isinstance(state, Frozen):
        recorded.on_replay = show
    recorded.on_switch = show
    return recorded
