"""`graphed`: record the forward and backward passes of functions and modules, like torch.cuda.make_graphed_callables."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from dynx._reading.tensors import differentiable
from dynx._torch.autograd.inductor import keeping_saved_tensors
from dynx.cudagraphs._config import Config, config_or_default
from dynx.cudagraphs._functions.autograd_tape import refuse_reentrant
from dynx.cudagraphs._functions.forward_backward import ForwardBackward, GradientPolicy
from dynx.cudagraphs._functions.recorded_function import RecordedFunction, RecordingPolicy, refuse_training_steps
from dynx.cudagraphs._recording.recording import Recording
from dynx.cudagraphs._recording.replayable import Call, Replayable
from dynx.cudagraphs._recording.restored_memory import RestoredMemory
from dynx.cudagraphs._runtime.interface import Runtime
from dynx.cudagraphs._runtime.select import check_bindings, select_runtime
from dynx.cudagraphs._search.code_names import name_of
from dynx.cudagraphs._search.find_modules import modules_of
from dynx.cudagraphs._state.module_state import GradState
from dynx.cudagraphs._state.params import leaves_in, tensors_of
from dynx.cudagraphs._state.validation import check_for_training, check_modules, check_parameters, check_wrappers
from dynx.errors import UsageError
from dynx.records.cudagraphs import GraphPlan


def graphed(
    fn: Any,
    sample_args: Sequence[Any],
    /,
    *,
    sample_kwargs: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    warmup: int = 3,
    allow_unused_input: bool = False,
    gradients: str = "autograd",
    pool: Any = None,
    stream: Any = None,
    capture_error_mode: str = "thread_local",
    config: Config | None = None,
) -> Any:
    """Record the forward and backward passes of a function or module, or of each element of a tuple of them.

    Like `torch.cuda.make_graphed_callables`, but less restricted: arguments may be keyword arguments, containers and objects
    other than tensors; other layouts of arguments, train or eval mode, and calls with or without gradients are recorded when
    they occur; changes of a module are detected (parameters, buffers, attributes); gradients are copies, so that they can
    accumulate over backward passes; the forward pass may run several times before its backward passes.

    A module is returned with its `forward` replaced, so that its own hooks run (`del module.forward` restores it); a
    function is wrapped.

    Args:
        fn: A function or module, or a tuple of them. The parameters that get gradients are those of the modules that it uses.
        sample_args: Arguments to record with; for a tuple, a tuple of arguments for each. What calls with them write to tensors
            is undone: statistics of batch normalization, for example, are as before.
        sample_kwargs: Keyword arguments to record with; for a tuple, a sequence of mappings.
        warmup: Number of uncaptured calls before the capture, at least 1; all but the last also run a backward pass.
        allow_unused_input: Accept arguments and parameters that get no gradient.
        gradients: "autograd", or "in_place": the graph writes gradients to `.grad` in its own memory and autograd sees one
            input instead of all parameters. Faster, but gradient hooks are refused, and `torch.autograd.grad` does not find
            parameters.
        pool: Memory pool of the graphs, from `torch.cuda.graph_pool_handle`; None creates one.
        stream: Stream to capture on; None creates one.
        capture_error_mode: As in `torch.cuda.graph`.
        config: Options; see `Config`.

    Returns:
        The module, or a callable with `.recordings` and `.close()`; for a tuple a tuple of them.

    Raises:
        UsageError: A replay would silently differ because of what the message names: hooks of submodules, buffers that require
            grad, parameters without a gradient (unless `allow_unused_input`).

    Example:
        >>> import torch
        >>> from dynx import cudagraphs
        >>> config = cudagraphs.Config(runtime="emulator")
        >>> model = cudagraphs.graphed(torch.nn.Linear(2, 2), (torch.ones(1, 2),), config=config)
        >>> model(torch.ones(1, 2)).sum().backward()
        >>> model.weight.grad.tolist()
        [[1.0, 1.0], [1.0, 1.0]]
    """
    _check_arguments(fn, sample_args, warmup, gradients)
    config = config_or_default(config)
    check_for_training(config)
    runtime = select_runtime(config, pool=pool, stream=stream, capture_error_mode=capture_error_mode)
    check_bindings(config, runtime)
    in_place = "in_place" in (gradients, config.gradients)
    make = partial(_graphed, config=config, runtime=runtime, warmup=warmup, allow_unused=allow_unused_input, in_place=in_place)
    if not isinstance(fn, tuple):
        with _all_or_none([fn]):
            return make(fn, tuple(sample_args), dict(sample_kwargs or {}))  # type: ignore[arg-type]
    if len(fn) != len(sample_args):
        raise UsageError(
            f"graphed got {len(fn)} callables, but sample arguments for {len(sample_args)}\n"
            "  pass a tuple of arguments for each"
        )
    all_kwargs: Sequence[Any] = sample_kwargs or [{}] * len(fn)  # type: ignore[assignment]
    with _all_or_none(fn):
        return tuple(
            make(function, tuple(args), kwargs) for function, args, kwargs in zip(fn, sample_args, all_kwargs, strict=True)
        )


def _check_arguments(fn: Any, sample_args: Any, warmup: int, gradients: str) -> None:
    if warmup < 1:
        raise UsageError(
            f"warmup={warmup} allows no call before the capture, but a first call sets up what cannot be captured\n"
            "  pass at least 1"
        )
    if gradients not in ("autograd", "in_place"):
        raise UsageError(f"gradients={gradients!r} is not a valid choice\n  valid choices: 'autograd', 'in_place'")
    if not isinstance(sample_args, (tuple, list)):
        raise UsageError(f"sample_args is of type {type(sample_args).__name__}, not a tuple\n  pass a tuple of arguments: (x,)")
    for function in fn if isinstance(fn, tuple) else (fn,):
        if not callable(function):
            kind = type(function).__name__
            raise UsageError(f"an object of type {kind} is not callable\n  pass a function or a module, or a tuple of them")
        refuse_training_steps(function)


def _graphed(
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    config: Config,
    runtime: Runtime | None,
    warmup: int,
    allow_unused: bool,
    in_place: bool,
) -> Any:
    def check_and_name(modules: Sequence[nn.Module]) -> list[tuple[str, torch.Tensor]]:
        check_modules(modules)
        named = _trained_params(modules)
        if in_place and runtime is not None:
            check_parameters(named, runtime.device)
            check_wrappers(named)
        return named

    def gradients() -> GradientPolicy:
        modules = modules_of(function)  # searched again: a name may refer to another module now
        return GradientPolicy(tuple(check_and_name(modules)), partial(leaves_in, modules), allow_unused, in_place)

    named = check_and_name(modules_of(function))
    forward = function.forward if isinstance(function, nn.Module) else function
    inner = _compiled(forward) if config.inner == "inductor" else forward
    others = [function] if isinstance(function, nn.Module) else []
    state = GradState(forward, runtime.device.type if runtime is not None else "cpu", others)
    policy = RecordingPolicy(
        make=partial(record_with_gradients, gradients), mutable=lambda: tensors_of(modules_of(function)), original=forward
    )
    recorded = RecordedFunction(inner, "call", f"graphed {name_of(function)}", config, runtime, state, policy)
    if isinstance(function, nn.Module):
        function.forward = recorded  # before it is recorded, since it is part of the module's state
    buffers = [buffer for module in modules_of(function) for buffer in module.buffers() if not is_lazy(buffer)]
    assignments = state.assignments()
    with RestoredMemory(buffers, remembers=True) as memory:
        for _ in range(warmup - 1 if runtime is not None else 0):
            assert runtime is not None
            runtime.warm_up(partial(_forward_backward, inner, args, kwargs, [param for _, param in named]))
    if not memory.before.equals(memory.written):
        assignments.undo()  # like the memory: it may be the flag of a data-dependent initialization
    recorded.record(*args, **kwargs)
    return function if isinstance(function, nn.Module) else recorded


@contextmanager
def _all_or_none(callables: Sequence[Any]) -> Iterator[None]:
    """Restore the original `forward` of all modules if an exception is raised while they are recorded."""
    before = [(module, vars(module).get("forward")) for module in callables if isinstance(module, nn.Module)]
    try:
        yield
    except BaseException:
        for module, forward in before:
            vars(module).pop("forward", None)
            if forward is not None:
                module.forward = forward
        raise


def _trained_params(modules: Sequence[nn.Module]) -> list[tuple[str, torch.Tensor]]:
    """Return the parameters that require grad, with their names; a parameter with several names only with the first."""
    params = [named for module in modules for named in module.named_parameters() if named[1].requires_grad]
    return list({id(param): (name, param) for name, param in reversed(params)}.values())[::-1]


def _compiled(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function compiled with inductor; its backward graph keeps saved tensors, since it may run several times."""
    run = torch.compile(forward)

    @functools.wraps(forward)
    def call(*args: Any, **kwargs: Any) -> Any:
        with keeping_saved_tensors():
            return run(*args, **kwargs)

    return call


def record_with_gradients(
    gradients: Callable[[], GradientPolicy],
    call: Call,
    plan: GraphPlan,
    config: Config,
    runtime: Runtime,
    tensors: Sequence[torch.Tensor],
    /,
) -> Replayable:
    """Return a pair of a forward and a backward recording if gradients may be needed, else a recording of the forward pass.

    Gradients may be needed if grad mode is enabled and a parameter or argument requires grad.
    """
    policy = gradients()
    if torch.is_grad_enabled() and (policy.parameters or any(tensor.requires_grad for tensor in tensors)):
        return ForwardBackward(call, plan, config, runtime, tensors, policy)
    return Recording(call, plan, config, runtime, tensors)


def _forward_backward(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], params: list[torch.Tensor]
) -> None:
    """Warm up: run a function forward and backward, with zeros as gradients of its results, without changing `.grad`."""
    inputs = differentiable((args, dict(kwargs)))
    results = differentiable(function(*args, **kwargs))
    refuse_reentrant(results)
    if results and (inputs or params):
        zeros = [torch.zeros_like(result) for result in results]
        torch.autograd.grad(results, [*inputs, *params], zeros, allow_unused=True)
