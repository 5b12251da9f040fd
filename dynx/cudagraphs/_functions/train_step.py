"""`train_step`: record a whole training step, from the loss to the optimizer, as one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from operator import attrgetter, is_
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_map_only

from dynx._torch.autograd.engine import renew_accumulators
from dynx._torch.autograd.hooks_and_scalers import forget_stages
from dynx._torch.ops import foreach
from dynx.cudagraphs._config import Config, config_or_default
from dynx.cudagraphs._functions.outer_leaves import check_arguments, outer_leaves_check
from dynx.cudagraphs._functions.recorded_function import RecordedCallable, RecordedFunction, RecordingPolicy
from dynx.cudagraphs._recording.recording import Recording
from dynx.cudagraphs._recording.replayable import Call, Replayable
from dynx.cudagraphs._runtime.interface import Runtime
from dynx.cudagraphs._runtime.select import check_bindings, select_runtime
from dynx.cudagraphs._search.code_names import signature_of
from dynx.cudagraphs._search.find_modules import modules_holding, modules_of
from dynx.cudagraphs._search.optimizers import tensors_in_state
from dynx.cudagraphs._search.search import is_module
from dynx.cudagraphs._state.module_state import State, Unchecked
from dynx.cudagraphs._state.params import tensors_of
from dynx.cudagraphs._state.training_state import TrainingState
from dynx.cudagraphs._state.validation import (
    check_examples,
    check_for_training,
    check_numbers,
    check_optimizer,
    check_parameters,
    check_wrappers,
    named_params,
)
from dynx.errors import CaptureFailed, ReplayDiffers, UsageError
from dynx.records.cudagraphs import GraphPlan


def train_step(
    fn: Callable[..., Any],
    params: Iterable[torch.Tensor] | Iterable[tuple[str, torch.Tensor]],
    /,
    *examples: Any,
    optimizer: torch.optim.Optimizer | None = None,
    scaler: torch.amp.GradScaler | None = None,
    clip_grad_norm: float | None = None,
    accumulate: int = 1,
    unsafe_skip_checks: bool = False,
    config: Config | None = None,
) -> RecordedCallable:
    """Return a callable that records and replays a training step: reset gradients, loss, backward, clipping, optimizer.

    The first call with a layout of arguments runs uncaptured, the second is captured and replayed, later calls are replayed.
    Each of these calls is a step of the training: none is only a warm-up.

    Each call checks what a recording depends on: the modules that the loss uses (as `fast_path` does), the addresses of the
    parameters, which parameters need gradients, and the groups, options and state of the optimizer. A tensor that the loss
    assigns to an attribute is in the recording's memory, which replays overwrite: to read it after the step, return it from
    the loss. A loss function that changes a Python number in each call, such as a counter, runs uncaptured, with a warning. If
    the learning rate changes, make it a tensor: each new number needs another recording.

    Args:
        fn: Returns the loss (a tensor of one element), or a tuple that begins with it. Called with the arguments of the step.
        params: Parameters to train, such as `model.parameters()` or `model.named_parameters()`.
        *examples: Arguments as the step will get them; validated, not trained on.
        optimizer: Its `step` is captured. Without one, a call leaves the gradients in `.grad`, in the recording's memory.
        scaler: A `torch.amp.GradScaler`; needs an optimizer with `fused=True`.
        clip_grad_norm: Maximum norm to clip gradients to; None: no clipping.
        accumulate: Number of calls over which gradients accumulate; the last call steps the optimizer. The loss is not divided
            by this number. Parameters that no call uses get zeros as gradients, not None.
        unsafe_skip_checks: Check only the arguments in each call. The caller promises that everything else stays unchanged,
            and that nobody assigns `.grad`.
        config: Options; see `Config`.

    Returns:
        A callable that returns what `fn` returns, detached; with `.recordings` and `.close()`.

    Raises:
        UsageError: The step cannot be captured; the message names the reason, such as DDP, FSDP, hooks on gradients or on
            the optimizer's step, an optimizer that reads tensors on the CPU, or gradients of tensors that are not in `params`.

    Example:
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
    scaler = _enabled_scaler(scaler, optimizer)
    config = config_or_default(config)
    check_for_training(config)
    runtime = select_runtime(config)
    check_bindings(config, runtime)
    all_named = named_params(params)
    all_params = [param for _, param in all_named]
    trained = [(name, param) for name, param in all_named if param.requires_grad]
    check_examples(examples, None if runtime is None else runtime.device)
    if runtime is not None:
        check_parameters(trained, runtime.device)
        check_wrappers(trained)
    if optimizer is not None:
        check_optimizer(optimizer, trained, scaler, accumulate)
    inner = torch.compile(fn) if config.inner == "inductor" else fn
    step = _Step(inner, all_params, optimizer, scaler, clip_grad_norm, keeps_gradients=accumulate > 1)
    found = {id(param) for module in modules_of(fn) for param in module.parameters()}
    others = [] if unsafe_skip_checks else modules_holding([param for param in all_params if id(param) not in found])

    @cache
    def recorded(phase: _Phase) -> RecordedFunction:  # calls between the first and the last share one
        if unsafe_skip_checks:
            return _recorded(step, phase, config, runtime, Unchecked())
        state = TrainingState(fn, all_params, optimizer if phase.ends else None, scaler, others, begins=phase.begins)
        return _recorded(step, phase, config, runtime, state)

    parts = [recorded(_Phase(number == 0, number == accumulate - 1)) for number in range(accumulate)]
    return parts[0] if accumulate == 1 else _Accumulating(parts, step, is_checked=not unsafe_skip_checks)


def _enabled_scaler(scaler: torch.amp.GradScaler | None, optimizer: Any) -> torch.amp.GradScaler | None:
    """Return the scaler; None if it is not enabled. Raises UsageError for an enabled scaler without an optimizer."""
    if scaler is None or not scaler.is_enabled():
        return None
    if optimizer is None:
        raise UsageError("a scaler needs an optimizer, but train_step got none\n  pass optimizer=")
    return scaler


class _Phase(NamedTuple):
    """Whether a call is the first, and whether it is the last, of the calls over which a step accumulates gradients."""

    begins: bool
    ends: bool


class _Accumulating:
    """A training step of several calls: each runs the next of `parts` and adds to gradients; the last steps the optimizer."""

    def __init__(self, parts: Sequence[RecordedFunction], step: _Step, *, is_checked: bool) -> None:
        self._parts, self._step, self._is_checked = parts, step, is_checked
        self.forward = parts[0]  # `Search` follows the attribute `forward` of all objects
        self._next = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._next > 0 and self._is_checked:
            self._step.adopt_gradients()
        part = self._parts[self._next]
        try:
            result = part(*args, **kwargs)
        except ReplayDiffers:  # memory is as after the call
            self._next = (self._next + 1) % len(self._parts)
            raise
        self._next = (self._next + 1) % len(self._parts)
        return result

    @property
    def recordings(self) -> list[Replayable]:
        return [recording for part in dict.fromkeys(self._parts) for recording in part.recordings]

    def close(self) -> None:
        """Release the memory of the recordings; the next calls record again."""
        for part in dict.fromkeys(self._parts):
            part.close()


class _Step:
    """The training step that is captured: reset gradients, loss, backward, gradient clipping, optimizer step."""

    def __init__(
        self,
        loss_fn: Callable[..., Any],
        params: list[torch.Tensor],
        optimizer: torch.optim.Optimizer | None,
        scaler: torch.amp.GradScaler | None,
        clip: float | None,
        *,
        keeps_gradients: bool,
    ) -> None:
        self.loss_fn, self.params, self.optimizer, self.scaler, self.clip = loss_fn, params, optimizer, scaler, clip
        self._keeps_gradients = keeps_gradients  # the parts of an accumulated step share the memory of gradients
        self._memory: list[torch.Tensor | None] = [None] * len(params)

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], phase: _Phase) -> Any:
        check_arguments(self.loss_fn, args, kwargs, self.params)
        self._begin(phase)
        with torch.enable_grad():
            result = self.loss_fn(*args, **kwargs)
            loss = _loss_of(result)
            check_outer_leaves = outer_leaves_check(loss, self.params)
            (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        # frees the autograd graph, and the tensors that only it holds
        result, loss = tree_map_only(torch.Tensor, lambda tensor: tensor.detach(), result), None
        check_outer_leaves()
        if phase.ends and self.optimizer is not None:
            self._step_optimizer(self.optimizer)
        elif phase.ends and self.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.params, self.clip)
        return result

    def _begin(self, phase: _Phase) -> None:
        """Set `.grad` to None or, if several calls accumulate gradients, to the sums so far: zeros if `phase.begins`."""
        if not self._keeps_gradients:
            set_gradients(self.params, [None] * len(self.params))
            return
        self._memory = [
            torch.zeros_like(param) if param.requires_grad and not _is_like(memory, param) else memory
            for param, memory in zip(self.params, self._memory, strict=True)
        ]
        if phase.begins:  # also those of frozen parameters, which may be unfrozen in the middle of a step
            foreach.zero_all([memory for memory in self._memory if memory is not None])
        is_kept = [param.requires_grad or (not phase.begins and param.grad is not None) for param in self.params]
        set_gradients(self.params, [memory if kept else None for memory, kept in zip(self._memory, is_kept, strict=True)])

    def adopt_gradients(self) -> None:
        """If the user assigned `.grad` between the calls of a step, copy it to the tensors in which gradients accumulate."""
        with torch.no_grad():
            for grad, memory in zip(self.gradients(), self._memory, strict=True):
                if memory is not None and grad is not memory:
                    memory.copy_(grad) if grad is not None else memory.zero_()

    def _step_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
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
            failed = CaptureFailed(f"the step of {kind} cannot be captured: {reason}\n  {_advice_for(optimizer)}")
            failed.location = error.location
            raise failed from None

    def gradients(self) -> list[torch.Tensor | None]:
        return [param.grad for param in self.params]


def set_gradients(params: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor | None]) -> None:
    """Assign `.grad` of all parameters, unless they have these gradients already."""
    if all(map(is_, map(_gradient, params), gradients)):  # reading is much faster than assigning
        return
    for param, gradient in zip(params, gradients, strict=True):
        param.grad = gradient


_gradient = attrgetter("grad")


def _is_like(gradient: torch.Tensor | None, param: torch.Tensor) -> bool:
    return gradient is not None and (gradient.size(), gradient.dtype) == (param.size(), param.dtype)


def _advice_for(optimizer: torch.optim.Optimizer) -> str:
    signature = signature_of(type(optimizer))
    options = [f"{name}=True" for name in ("fused", "capturable") if signature is not None and name in signature.parameters]
    return f"create it with {', or '.join(options)}" if options else "use another optimizer: this one reads values on the CPU"


def _loss_of(result: Any) -> torch.Tensor:
    loss = result[0] if isinstance(result, (tuple, list)) and result else result
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        what = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else f"of type {type(loss).__name__}"
        raise UsageError(
            f"the loss is {what}, not a tensor of one element\n"
            "  return a mean or a sum; if there are several results, return the loss first"
        )
    return loss


class _NotCopyable:
    """A stand-in for a training step that raises UsageError when it is copied or pickled."""

    def __reduce__(self) -> Any:
        raise UsageError(
            "a callable from train_step belongs to its parameters and optimizer, and cannot be copied or pickled\n"
            "  call train_step again with the copied parameters"
        )


def _recorded(step: _Step, phase: _Phase, config: Config, runtime: Runtime | None, state: State) -> RecordedFunction:
    def run(*args: Any, **kwargs: Any) -> Any:
        before = step.gradients()
        try:
            return step(args, kwargs, phase)
        except BaseException:
            set_gradients(step.params, before)
            if step.scaler is not None:
                forget_stages(step.scaler)
            raise

    def record(call: Call, plan: GraphPlan, config: Config, runtime: Runtime, args: Sequence[Any], /) -> Recording:
        renew_accumulators([param for param in step.params if param.requires_grad])
        return Recording(call, plan, config, runtime, args)

    def memory() -> list[torch.Tensor]:
        optimizers = [] if step.optimizer is None else [step.optimizer]
        modules = [*modules_of(step.loss_fn), *modules_holding(step.params)]
        return [*step.params, *tensors_of(modules), *tensors_in_state(optimizers, step.params)]

    def show_gradients(recording: Replayable) -> None:
        set_gradients(step.params, recording.kept_outputs)

    run.__signature__ = signature_of(step.loss_fn)  # type: ignore[attr-defined]
    policy = RecordingPolicy(
        make=record,
        kept_outputs=step.gradients,
        memory=memory,
        is_part_of_state=state.is_checked if isinstance(state, TrainingState) else is_module,
        original=_NotCopyable(),
        advice="keep it in a tensor on the device that is changed in place (add_, copy_), or change it between the calls",
        on_replay=None if isinstance(state, Unchecked) else show_gradients,
        on_switch=show_gradients,
    )
    return RecordedFunction(run, "step", "the training step", config, runtime, state, policy)
