"""See the calls of compiled functions, and their arguments.

Torch: the wrapper that torch.compile returns calls `eval_frame._callback_from_stance` in each call. Its frame has the function
and the arguments as `fn`, `args` and `kwargs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, NamedTuple

from dynx._bytecode.cells import is_filled
from dynx._torch.capabilities import hook_point
from dynx._torch.hooks import Wrapping, wrap


class CompiledCall(NamedTuple):
    """A call of a compiled function: its code, and the variables that the call begins with."""

    code: CodeType
    locals: Mapping[str, Any]


def on_compiled_call(seen: Callable[[], None]) -> Wrapping:
    """Call `seen` before each call of a compiled function, until the handle is removed."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def callback_from_stance(callback: Any) -> Any:
            seen()
            return original(callback)

        return callback_from_stance

    return wrap(hook_point("compiled_call"), make)


def call_in(frame: FrameType | None) -> CompiledCall | None:
    """Return the call that one of the callers of a hook makes; None if it is not found."""
    for _ in range(8):
        if frame is None:
            return None
        if "compile_wrapper" in frame.f_code.co_name or frame.f_code.co_name == "_fn":
            return _call(frame.f_locals)
        frame = frame.f_back
    return None


def _call(variables: Mapping[str, Any]) -> CompiledCall | None:
    function: Any = variables.get("fn")
    args, kwargs = variables.get("args", ()), variables.get("kwargs", {})
    if type(function) is MethodType:
        function, args = function.__func__, (function.__self__, *args)
    if type(function) is not FunctionType:
        return None
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]
    defaults = dict(zip(reversed(names), reversed(function.__defaults__ or ()), strict=False))
    cells = zip(code.co_freevars, function.__closure__ or (), strict=False)
    of_closure = {name: cell.cell_contents for name, cell in cells if is_filled(cell)}
    given = dict(zip(names, args, strict=False))
    return CompiledCall(code, {**of_closure, **defaults, **(function.__kwdefaults__ or {}), **given, **kwargs})
