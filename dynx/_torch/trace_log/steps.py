"""Wrap the method with which Dynamo traces one instruction, and find the innermost symbolic frame when a graph breaks.

Torch: `convert_frame.trace_frame` is one tracing attempt, and calls `InstructionTranslatorBase.step` for each instruction of
each frame; an inlined frame is traced inside a step of its caller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynx._bytecode.large_frame import call_in_large_frame
from dynx._handle import Handle
from dynx._torch import hooks
from dynx._torch.capabilities import hook_point
from dynx._torch.tracing import translator


class StepHook(Handle):
    """A handle that replaces Dynamo's `step` by `make(original)`; after `remove()`, the new step must only call `original`."""

    def __init__(self, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self._handles = hooks.wrap(hook_point("step"), make, passes_on=True), room_for_frames()

    def remove(self) -> None:
        """Remove the wrapper."""
        for handle in self._handles:
            handle.remove()


def room_for_frames() -> hooks.Wrapping:
    """Reserve memory for Python's frames (see `large_frame`) in each tracing attempt, until the handle is removed.

    dynx's hooks add Python frames to a trace. The reserved memory saves more time than such a hook costs.
    """
    return hooks.wrap(
        hook_point("attempt"), lambda original: lambda *args, **kwargs: call_in_large_frame(original, args, kwargs)
    )


# takes the error and the translators that it passed, innermost first, each with its stack before the instruction
OnBreak = Callable[[BaseException, list[tuple[Any, list[Any]]]], None]


class BreakWatch(Handle):
    """A handle that calls `on_break` for each error that ends a graph, before torch unwinds the innermost symbolic frame.

    Such an error propagates out of the `step` of the innermost frame first. If that frame can handle the graph break itself,
    the error does not propagate: torch logs it within the step (`log_graph_break`).
    """

    def __init__(self, on_break: OnBreak, report: Callable[[str, BaseException], None]) -> None:
        self._on_break, self._report = on_break, report
        self._is_on = True
        self._step = StepHook(self._around_step)
        self._log = hooks.subscribe(hook_point("graph_break"), self._logged, on_error=report)

    def remove(self) -> None:
        """Remove the hooks."""
        self._is_on = False
        self._step.remove()
        self._log.remove()

    def _around_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        errors = break_errors()

        def step(tx: Any) -> Any:
            if not self._is_on:
                return original(tx)
            tx._dynx_stack = tx.stack.copy()  # must be fast: it runs for each instruction
            try:
                return original(tx)
            except errors as error:
                self._report_break(tx, error)
                raise

        return step

    def _logged(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._report_break(args[0], logged_error(args, kwargs))

    def _report_break(self, innermost: Any, error: BaseException) -> None:
        traced = [tx for tx in translator.chain(innermost) if hasattr(tx, "_dynx_stack")]
        if not traced or not is_new(error, self):
            return
        try:
            self._on_break(error, [(tx, tx._dynx_stack) for tx in traced])
        except Exception as failure:  # noqa: BLE001 - an observer that fails must not fail the program
            self._report("step", failure)


def break_errors() -> tuple[type[BaseException], ...]:
    """Return the exception classes that end a graph or a compilation when `InstructionTranslator.step` raises them."""
    from torch._dynamo import exc

    breaks = exc.Unsupported, exc.UserError
    return (*breaks, exc.TorchRuntimeError, exc.BackendCompilerFailed, exc.InternalTorchDynamoError)


def logged_error(args: tuple[Any, ...], kwargs: dict[str, Any]) -> BaseException:
    """Return the error in the arguments of `log_graph_break`, which torch calls for an error that `step` does not raise."""
    return kwargs["exc"] if "exc" in kwargs else args[3]


def is_new(error: BaseException, watcher: Any) -> bool:
    """Return whether `watcher` has seen neither `error` nor the error that `error` wraps; mark `error` as seen by `watcher`."""
    if watcher in _watchers_of(error):
        return False
    _watchers_of(error).append(watcher)
    wrapped = error.__cause__ or error.__context__
    return wrapped is None or watcher not in _watchers_of(wrapped)


def _watchers_of(error: BaseException) -> list[Any]:
    return error.__dict__.setdefault("_dynx_seen", [])  # stored on the error itself
