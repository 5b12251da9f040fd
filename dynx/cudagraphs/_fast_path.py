"""A function that is replayed without Dynamo and AOTAutograd."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any

import torch
from torch import nn

from dynx.cudagraphs._buckets import Bucketed, check_buckets
from dynx.cudagraphs._config import Config
from dynx.cudagraphs._leaves import tensors_of
from dynx.cudagraphs._recorded import Recorded
from dynx.cudagraphs._states import Frozen, ModuleState
from dynx.cudagraphs._told import Told
from dynx.cudagraphs.runtime import check_bindings, runtime_of
from dynx.errors import UsageError


def fast_path(
    function: Callable[..., Any], *examples: Any, frozen: bool = False, config: Config | None = None
) -> Callable[..., Any]:
    """Record a function or module, and give what replays it: without gradients, without Dynamo, without AOTAutograd.

    The function is called with `examples` twice, once as it is and once to be recorded; Python does not run in a replay.
    Other layouts of arguments (dtypes, sizes, strides, numbers, containers) run as they are once, then get a recording of their
    own, `config.max_recordings` in all.

    With `config.buckets` tensors are padded with zeros to the next size of their dimensions, and results are cut: few
    recordings, which share their memory, serve all sizes up to the largest. All are recorded at once.

    Each call checks that the modules which the function uses are as they were: attributes, parameters and where they lie,
    submodules, hooks, train or eval; otherwise it records anew. With `frozen` it checks the arguments only, and you promise
    the rest. With `config.params="patch"` a graph is told in each call where the parameters are: they may be others, of the
    same layout, without another recording. Outputs are those of `config.outputs`; "static" gives the recording's own tensors,
    which the next call overwrites.

    Raises UsageError if it finds no module to check, and CaptureError (with `config.or_error`) for what cannot be captured.

    >>> import torch
    >>> from dynx import cudagraphs
    >>> model = torch.nn.Linear(2, 2)
    >>> run = cudagraphs.fast_path(model, torch.ones(1, 2), config=cudagraphs.Config(runtime="emulator"))
    >>> x = torch.randn(1, 2)
    >>> bool((run(x) == model(x)).all())
    True
    """
    config = config or Config()
    runtime, modules = runtime_of(config), modules_of(function)
    check_bindings(config, runtime)
    if not frozen and (unset := _unset(function)):
        raise UsageError(
            f"{unset[0]}, which {name_of(function)} uses, has no value yet, so it cannot be checked\n"
            "  give it one before, or promise with frozen=True"
        )
    if not frozen and not modules:
        raise UsageError(
            f"no module is known that {name_of(function)} uses, so nothing can be checked\n  promise with frozen=True"
        )
    if config.params == "patch" and (frozen or config.buckets):
        raise UsageError("params='patch' looks at the parameters in each call\n  leave out frozen and buckets")
    inner = torch.compile(function) if config.inner == "inductor" else function

    def call(*args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return inner(*args, **kwargs)

    call.__signature__ = _signature(function)  # type: ignore[attr-defined]
    name = f"the fast path of {name_of(function)}"

    def plainly() -> Recorded:
        state = Frozen() if frozen else ModuleState(modules, runtime.device.type if runtime is not None else "cpu")
        recorded = Recorded(call, "call", name, config, runtime, state)
        recorded.watched = tensors_of(modules)
        return recorded

    found: Any = None
    if config.params == "patch" and runtime is not None:
        found = Told(call, modules, name, config, runtime, plainly)
    elif config.buckets:
        check_buckets(config.buckets, config.outputs, config.max_recordings)
        found = Bucketed(plainly(), config.buckets)
    else:
        found = plainly()
    if examples:
        found.record(*examples)
    return found


def modules_of(function: Callable[..., Any]) -> list[nn.Module]:
    """Find the modules that a function uses: itself, its object, what it closes over, its globals."""
    if isinstance(function, nn.Module):
        return [function]
    owner = getattr(function, "__self__", None)
    if isinstance(owner, nn.Module):
        return [owner]
    inner = _plain(function)
    if inner is None:
        return []
    closed = [each.cell_contents for each in inner.__closure__ or () if not _is_empty(each)]
    known = [inner.__globals__[name] for name in inner.__code__.co_names if name in inner.__globals__]
    return [each for each in (*closed, *known) if isinstance(each, nn.Module)]


def _plain(function: Callable[..., Any]) -> FunctionType | None:
    """Give the function behind wrappers and methods; None where that is written in C."""
    inner: Any = inspect.unwrap(function)
    inner = getattr(inner, "__func__", inner)
    return inner if inspect.isfunction(inner) else None


def _unset(function: Callable[..., Any]) -> list[str]:
    """Name the variables of functions around it that have no value yet."""
    inner = _plain(function)
    if inner is None:
        return []
    cells = zip(inner.__code__.co_freevars, inner.__closure__ or (), strict=True)
    return [name for name, cell in cells if _is_empty(cell)]


def _is_empty(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:  # what it is for comes later
        return True
    return False


def name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function.forward if isinstance(function, nn.Module) else function)
    except (TypeError, ValueError):
        return None
