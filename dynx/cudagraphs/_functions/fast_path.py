"""`fast_path`: record a function for inference, and replay it without Dynamo, AOTAutograd or its Python code."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from dynx.cudagraphs._config import Config, config_or_default
from dynx.cudagraphs._functions.buckets import Bucketed, check_buckets
from dynx.cudagraphs._functions.patched_params import PatchedParams
from dynx.cudagraphs._functions.recorded_function import (
    RecordedCallable,
    RecordedFunction,
    RecordingPolicy,
    refuse_training_steps,
)
from dynx.cudagraphs._runtime.select import check_bindings, select_runtime
from dynx.cudagraphs._search.bindings import tensors_named_by
from dynx.cudagraphs._search.code_names import name_of, signature_of
from dynx.cudagraphs._search.find_modules import modules_of, unset_closure_variables
from dynx.cudagraphs._state.module_state import ModuleState, Unchecked
from dynx.cudagraphs._state.params import tensors_of
from dynx.errors import UsageError


def fast_path(
    fn: Callable[..., Any], /, *examples: Any, unsafe_skip_checks: bool = False, config: Config | None = None
) -> RecordedCallable:
    """Record a function or module for inference, and return a callable that replays it without Dynamo and AOTAutograd.

    The function is called with `examples` uncaptured (once more if that sets attributes of its modules), then captured; Python
    does not run in a replay. Arguments of other dtypes, sizes, strides, scalars or containers run uncaptured once, then get
    recordings of their own.

    Each call checks that what the function uses is unchanged: its modules (attributes and what they hold, parameters and their
    addresses, submodules, hooks, classes), and the tensors, numbers and functions that it reads by name. After a change
    one call runs uncaptured, and the next is recorded. A function that itself changes any of these in each call runs
    uncaptured, with a warning.

    With `config.buckets` tensors are padded with zeros to the next bucket size, and results are narrowed: few recordings, which
    share their memory, serve all sizes up to the largest bucket. If there are `examples`, all bucket sizes are recorded before
    `fast_path` returns.

    With `config.params="patch"` each call sets the graph's pointers to the current parameters, so that these can be replaced by
    others of the same layout without another recording.

    Args:
        fn: Function or module; runs without gradients.
        *examples: Arguments to record with at once; without examples, the second call with a layout is recorded. What the calls
            with examples write to tensors is undone.
        unsafe_skip_checks: Check only the arguments in each call. The caller promises that modules, parameters and autocast
            stay unchanged.
        config: Options; see `Config`.

    Returns:
        A callable with the signature of `fn`, `.recordings` and `.close()`.

    Raises:
        UsageError: No module that `fn` uses can be found, so nothing could be checked; or options contradict each other.
        CaptureError: The function cannot be captured, and `config.or_error` is set.

    Example:
        >>> import torch
        >>> from dynx import cudagraphs
        >>> model = torch.nn.Linear(2, 2)
        >>> run = cudagraphs.fast_path(model, torch.ones(1, 2), config=cudagraphs.Config(runtime="emulator"))
        >>> x = torch.randn(1, 2)
        >>> bool((run(x) == model(x)).all())
        True
    """
    config = config_or_default(config)
    _check_arguments(fn, examples)
    while isinstance(fn, (RecordedFunction, _WithoutGradients)):
        fn = fn.forward  # the function inside, recorded once, with the options of this call
    runtime = select_runtime(config)
    check_bindings(config, runtime)
    if not unsafe_skip_checks:
        _check_function(fn)
    if config.params == "patch" and (unsafe_skip_checks or config.buckets):
        raise UsageError(
            "params='patch' checks the parameters in each call, so it does not work with unsafe_skip_checks or buckets\n"
            "  leave out unsafe_skip_checks and buckets"
        )
    inner = torch.compile(fn) if config.inner == "inductor" else fn
    call = _WithoutGradients(inner)
    name = f"the fast path of {name_of(fn)}"

    def tensors_used() -> list[torch.Tensor]:
        return [*tensors_of(modules_of(fn)), *tensors_named_by(fn)]

    def recorded_function() -> RecordedFunction:
        state = Unchecked() if unsafe_skip_checks else ModuleState(fn, runtime.device.type if runtime is not None else "cpu")
        policy = RecordingPolicy(mutable=tensors_used, original=_WithoutGradients(fn))
        return RecordedFunction(call, "call", name, config, runtime, state, policy)

    recorded: PatchedParams | Bucketed | RecordedFunction
    if config.params == "patch" and runtime is not None:
        recorded = PatchedParams(call, fn, name, config, runtime, recorded_function)
    elif config.buckets:
        check_buckets(config.buckets, config.outputs, config.max_recordings)
        recorded = Bucketed(recorded_function(), config.buckets)
    else:
        recorded = recorded_function()
    if examples:
        recorded.record(*examples)
    return recorded


def _check_arguments(fn: Any, examples: tuple[Any, ...]) -> None:
    if not callable(fn):
        raise UsageError(f"{fn!r} is not callable\n  pass a module or a function")
    if any(isinstance(example, Config) for example in examples):
        raise UsageError("a Config was passed as an example argument\n  pass it as config=")
    refuse_training_steps(fn)


def _check_function(fn: Callable[..., Any]) -> None:
    """Raise UsageError if later changes of the variables and modules that a function uses could not be detected."""
    if names := unset_closure_variables(fn):
        raise UsageError(
            f"the variable {names[0]}, which {name_of(fn)} uses, has no value yet, so its changes cannot be detected\n"
            "  assign it before fast_path is called, or skip the checks with unsafe_skip_checks=True"
        )
    if not modules_of(fn):
        raise UsageError(
            f"found no nn.Module that {name_of(fn)} uses, so changes of parameters and attributes cannot be detected\n"
            "  pass a module, or skip the checks with unsafe_skip_checks=True"
        )


class _WithoutGradients:
    """A callable that runs a function under `torch.no_grad`; its deep copy runs a deep copy of the function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = self.forward = function
        self.__signature__ = signature_of(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return self._function(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> _WithoutGradients:
        return _WithoutGradients(copy.deepcopy(self._function, memo))

    def __reduce__(self) -> tuple[Any, ...]:
        return _WithoutGradients, (self._function,)
