"""A function that is replayed without Dynamo and AOTAutograd."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from dynx.cudagraphs._config import Config, config_or_default
from dynx.cudagraphs._functions.buckets import Bucketed, check_buckets
from dynx.cudagraphs._functions.patched_params import Told
from dynx.cudagraphs._functions.recorded_function import Recorded
from dynx.cudagraphs._runtime.select import check_bindings, runtime_of
from dynx.cudagraphs._state.code_names import name_of, signature_of
from dynx.cudagraphs._state.find_modules import modules_of, unset
from dynx.cudagraphs._state.module_state import Frozen, ModuleState
from dynx.cudagraphs._state.params import tensors_of
from dynx.errors import UsageError


def fast_path(
    function: Callable[..., Any], *examples: Any, frozen: bool = False, config: Config | None = None
) -> Callable[..., Any]:
    """Record a function or module, and give what replays it: without gradients, without Dynamo, without AOTAutograd.

    The function is called with `examples` as it is (once more if that set attributes of its modules), then to be recorded;
    Python does not run in a replay.
    Other layouts of arguments (dtypes, sizes, strides, numbers, containers) run as they are once, then get a recording of their
    own, `config.max_recordings` in all.

    With `config.buckets` tensors are padded with zeros to the next size of their dimensions, and results are cut: few
    recordings, which share their memory, serve all sizes up to the largest. All are recorded at once.

    Each call checks that the modules which the function uses are as they were: attributes, parameters and where they lie,
    submodules, hooks, train or eval; otherwise it records anew. A function that assigns attributes of its modules in each call
    runs uncaptured, with a warning. With `frozen` it checks the arguments only, and you promise the rest.

    With `config.params="patch"` a graph is told in each call where the parameters are: they may be others, of the same layout,
    without another recording. Outputs are those of `config.outputs`; "static" gives the recording's own tensors, which the next
    call overwrites.

    Raises UsageError if it finds no module to check, and CaptureError (with `config.or_error`) for what cannot be captured.

    >>> import torch
    >>> from dynx import cudagraphs
    >>> model = torch.nn.Linear(2, 2)
    >>> run = cudagraphs.fast_path(model, torch.ones(1, 2), config=cudagraphs.Config(runtime="emulator"))
    >>> x = torch.randn(1, 2)
    >>> bool((run(x) == model(x)).all())
    True
    """
    config = config_or_default(config)
    if not callable(function):
        raise UsageError(f"{function!r} cannot be called\n  give a module or a function")
    if any(isinstance(each, Config) for each in examples):
        raise UsageError("a Config stands among the examples\n  give it as config=")
    runtime, modules = runtime_of(config), modules_of(function)
    check_bindings(config, runtime)
    if not frozen and (names := unset(function)):
        raise UsageError(
            f"{names[0]}, which {name_of(function)} uses, has no value yet, so it cannot be checked\n"
            "  give it one before, or promise with frozen=True"
        )
    if not frozen and not modules:
        raise UsageError(
            f"no module is known that {name_of(function)} uses, so nothing can be checked\n  promise with frozen=True"
        )
    if config.params == "patch" and (frozen or config.buckets):
        raise UsageError("params='patch' looks at the parameters in each call\n  leave out frozen and buckets")
    inner = torch.compile(function) if config.inner == "inductor" else function

    call = _Ungraded(inner)
    name = f"the fast path of {name_of(function)}"

    def plainly() -> Recorded:
        state = Frozen() if frozen else ModuleState(function, runtime.device.type if runtime is not None else "cpu")
        recorded = Recorded(call, "call", name, config, runtime, state)
        recorded.watched = lambda: tensors_of(modules_of(function))
        recorded.original = _Ungraded(function)
        return recorded

    found: Any = None
    if config.params == "patch" and runtime is not None:
        found = Told(call, function, name, config, runtime, plainly)
    elif config.buckets:
        check_buckets(config.buckets, config.outputs, config.max_recordings)
        found = Bucketed(plainly(), config.buckets)
    else:
        found = plainly()
    if examples:
        found.record(*examples)
    return found


class _Ungraded:
    """Calls a function without gradients; a copy calls a copy of it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.__signature__ = signature_of(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return self._function(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Ungraded:
        return _Ungraded(copy.deepcopy(self._function, memo))

    def __reduce__(self) -> tuple[Any, ...]:
        return _Ungraded, (self._function,)
