"""Functions and modules whose forward and backward passes are recordings, as of torch.cuda.make_graphed_callables."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from dynx._torch.autograd.inductor import keeping_saved_tensors
from dynx.cudagraphs._config import Config, config_or_default
from dynx.cudagraphs._functions.forward_backward import Gradients, Pair
from dynx.cudagraphs._functions.recorded_function import Recorded
from dynx.cudagraphs._recording.recording import Recording
from dynx.cudagraphs._runtime.select import check_bindings, runtime_of
from dynx.cudagraphs._state.code_names import name_of
from dynx.cudagraphs._state.find_modules import modules_of
from dynx.cudagraphs._state.module_state import GradState
from dynx.cudagraphs._state.params import leaves_in, tensors_of
from dynx.cudagraphs._state.validation import check_for_training, check_modules, check_parameters, check_wrappers
from dynx.errors import UsageError

Function = TypeVar("Function", bound=Callable[..., Any])


def graphed(
    callables: Any,
    sample_args: Sequence[Any],
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
    """Record the forward and backward passes of a function or module, or of each of a tuple of them.

    Like `torch.cuda.make_graphed_callables`, whose `sample_args` are a tuple of arguments, or a tuple of such tuples. Besides,
    arguments may be keywords, containers and no tensors; other layouts are recorded when they come; a module is recorded for
    training and for evaluation, with gradients and without; what changes in a module is noticed; gradients are copies, so that
    they can add up over backward passes; a forward pass may be called again before the backward pass of the first.

    A module is given back with its `forward` replaced (`del module.forward` undoes it), so its own hooks are called; a function
    becomes another. Gradients of parameters are those of the modules that a function uses. With `gradients="in_place"` the
    graph writes them to `.grad` itself, in its own memory, and autograd sees one input instead of all parameters: faster, but
    hooks on gradients are refused, and torch.autograd.grad does not find parameters.

    Raises UsageError for what would go wrong in silence, by name: hooks of submodules, buffers that need gradients, parameters
    that get none (without `allow_unused_input`).

    >>> import torch
    >>> from dynx import cudagraphs
    >>> config = cudagraphs.Config(runtime="emulator")
    >>> model = cudagraphs.graphed(torch.nn.Linear(2, 2), (torch.ones(1, 2),), config=config)
    >>> model(torch.ones(1, 2)).sum().backward()
    >>> model.weight.grad.tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    if warmup < 1:
        raise UsageError(f"warmup={warmup}: what is set up in a first call cannot be captured\n  give at least 1")
    if gradients not in ("autograd", "in_place"):
        raise UsageError(f"gradients={gradients!r} is no choice\n  there is 'autograd', 'in_place'")
    config = config_or_default(config)
    if not isinstance(sample_args, (tuple, list)):
        raise UsageError(f"sample_args is a {type(sample_args).__name__}\n  give a tuple of arguments: (x,)")
    for each in callables if isinstance(callables, tuple) else (callables,):
        if not callable(each):
            raise UsageError(f"a {type(each).__name__} cannot be called\n  give a function or a module, or a tuple of them")
    check_for_training(config)
    runtime = runtime_of(config, pool=pool, stream=stream, capture_error_mode=capture_error_mode)
    check_bindings(config, runtime)
    make = partial(
        _graphed,
        config=config,
        runtime=runtime,
        warmup=warmup,
        allow_unused=allow_unused_input,
        in_place="in_place" in (gradients, config.gradients),
    )
    if not isinstance(callables, tuple):
        with _all_or_none([callables]):
            return make(callables, tuple(sample_args), dict(sample_kwargs or {}))  # type: ignore[arg-type]
    if len(callables) != len(sample_args):
        raise UsageError(f"there are {len(callables)} callables, and arguments for {len(sample_args)}\n  give a tuple for each")
    keywords: Sequence[Any] = sample_kwargs or [{}] * len(callables)  # type: ignore[assignment]
    with _all_or_none(callables):
        return tuple(
            make(each, tuple(args), kwargs) for each, args, kwargs in zip(callables, sample_args, keywords, strict=True)
        )


def _graphed(
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    config: Config,
    runtime: Any,
    warmup: int,
    allow_unused: bool,
    in_place: bool,
) -> Any:

    def checked(modules: Sequence[nn.Module]) -> list[tuple[str, torch.Tensor]]:
        check_modules(modules)
        named = _named(modules)
        if in_place and runtime is not None:
            check_parameters(named, runtime.device)
            check_wrappers(named)
        return named

    named = checked(modules_of(function))
    forward = function.forward if isinstance(function, nn.Module) else function
    inner = _compiled(forward) if config.inner == "inductor" else forward
    recorded = Recorded(inner, "call", f"graphed {name_of(function)}", config, runtime, GradState(function, _device(runtime)))

    def wanted() -> Gradients:
        used = modules_of(function)  # a name may be bound to another now
        return Gradients(tuple(checked(used)), partial(leaves_in, used), allow_unused, in_place)

    recorded.watched = lambda: tensors_of(modules_of(function))
    recorded.original = forward
    recorded.make = partial(recording_with, wanted)
    if isinstance(function, nn.Module):
        function.forward = recorded  # before it is recorded, since it is part of the module's state
    for _ in range(warmup - 1 if runtime is not None else 0):
        runtime.warm_up(partial(_try, inner, args, kwargs, [each for _, each in named]))
    recorded.record(*args, **kwargs)
    return function if isinstance(function, nn.Module) else recorded


@contextmanager
def _all_or_none(callables: Sequence[Any]) -> Iterator[None]:
    """Have modules run what they ran before, where one of them cannot be recorded."""
    befores = [(each, vars(each).get("forward")) for each in callables if isinstance(each, nn.Module)]
    try:
        yield
    except BaseException:
        for each, before in befores:
            vars(each).pop("forward", None)
            if before is not None:
                each.forward = before
        raise


def _named(modules: Sequence[nn.Module]) -> list[tuple[str, torch.Tensor]]:
    """Name parameters that need gradients, each once."""
    found = [each for module in modules for each in module.named_parameters() if each[1].requires_grad]
    return list({id(each): (name, each) for name, each in reversed(found)}.values())[::-1]


def _compiled(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Compile with inductor; a backward pass is captured without giving up what the forward pass saved."""
    run = torch.compile(forward)

    @functools.wraps(forward)
    def call(*args: Any, **kwargs: Any) -> Any:
        with keeping_saved_tensors():
            return run(*args, **kwargs)

    return call


def _device(runtime: Any) -> str:
    return runtime.device.type if runtime is not None else "cpu"


def recording_with(
    gradients_of: Callable[[], Gradients],
    call: Any,
    plan: Any,
    config: Config,
    runtime: Any,
    tensors: Sequence[torch.Tensor],
) -> Any:
    """Record with a backward pass, where there are gradients."""
    gradients = gradients_of()
    if torch.is_grad_enabled() and (gradients.parameters or any(each.requires_grad for each in tensors)):
        return Pair(call, plan, config, runtime, tensors, gradients)
    return Recording(call, plan, config, runtime, tensors)


def _try(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], params: list[torch.Tensor]) -> None:
    """Run a function forward and backward, without adding to gradients."""
    given = [each for each in tree_leaves((args, dict(kwargs))) if isinstance(each, torch.Tensor) and each.requires_grad]
    results = [each for each in tree_leaves(function(*args, **kwargs)) if isinstance(each, torch.Tensor) and each.requires_grad]
    if results and (given or params):
        torch.autograd.grad(results, [*given, *params], [torch.zeros_like(each) for each in results], allow_unused=True)
