"""`Uses`: record how a program uses torch.compile while a `dynx.watch` is open, to explain why nothing was compiled."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from dynx._reading.user_location import location_of_call, owner_of_file
from dynx._torch import hooks
from dynx._torch.capabilities import hook_point
from dynx._torch.compilation.uses import call_of, prepared
from dynx._torch.hooks import After, Subscription, subscribe
from dynx.errors import UnsupportedTorch
from dynx.records import CompileUse, Location

_HOOKS = hooks.__file__


class Uses:
    """A recorder of the uses of `torch.compile`, and of the settings, such as the stance, at the first call of compiled code.

    The hook on calls of compiled functions is removed at the first call that may compile: later calls have no overhead.
    """

    def __init__(self) -> None:
        self._prepared = 0
        self._why_not: list[str] = []
        self._raised: list[str] = []
        self._call: Location | None = None
        self._eager_call: Location | None = None
        self._is_called = self._is_forced_eager = self._is_disabled = False
        self._modes: tuple[str, ...] = ()
        self._subscriptions: list[Subscription] = []
        for name, before in (
            ("prepared", self._on_prepare),
            ("backend_lookup", self._on_lookup),
            ("compiled_call", self._on_call),
        ):
            try:  # an error in a hook is ignored: missing data is not reported
                self._subscriptions.append(subscribe(hook_point(name), before, on_error=lambda hook, error: None))
            except UnsupportedTorch:
                break
        self._is_complete = len(self._subscriptions) == 3

    def remove(self) -> None:
        """Remove the hooks."""
        while self._subscriptions:
            self._subscriptions.pop().remove()

    @property
    def record(self) -> CompileUse | None:
        """The record of the uses of torch.compile so far; None if the installed torch lacks a function to hook."""
        if not self._is_complete:
            return None
        return CompileUse(
            self._prepared,
            tuple(dict.fromkeys(self._why_not)),
            tuple(dict.fromkeys(self._raised)),
            self._is_called,
            self._call,
            self._is_forced_eager,
            self._eager_call,
            self._is_disabled,
            self._modes,
        )

    def _on_prepare(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> After:
        def after(result: Any, raised: BaseException | None) -> None:
            if raised is not None:
                self._failed(raised)
                return
            found = prepared(kwargs, result)
            self._prepared += found.compiles
            if not found.compiles:
                self._why_not.append(found.why_not)

        return after

    def _on_lookup(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> After:
        def after(result: Any, raised: BaseException | None) -> None:
            if raised is not None:
                self._failed(raised)

        return after

    def _failed(self, raised: BaseException) -> None:
        text = str(raised).strip().partition("\n")[0]
        self._raised.append(f"{type(raised).__name__}: {text}" if text else type(raised).__name__)

    def _on_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        call = call_of(args)
        if call is None or self._is_called or _is_of_dynx(sys._getframe()):
            return
        if call.stance == "force_eager":
            if not self._is_forced_eager:
                self._is_forced_eager, self._eager_call = True, location_of_call()
            return
        self._is_called, self._call = True, location_of_call()
        self._is_disabled, self._modes = call.is_disabled, call.modes
        self._subscriptions.pop().remove()  # the hook on calls, which was added last


def _is_of_dynx(frame: FrameType | None) -> bool:
    """Return whether dynx itself, such as `would_recompile`, made the hooked call; `frame` is the frame of the hook."""
    while frame is not None and frame.f_code.co_filename in (__file__, _HOOKS):
        frame = frame.f_back
    return frame is not None and owner_of_file(frame.f_code.co_filename).kind == "dynx"
