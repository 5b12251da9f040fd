"""Report compiled functions that reach a recompile limit, without replacing an attribute of torch's classes.

Torch: the callback of a compiled function wraps a `ConvertFrame`. Its `_inner_convert` compiles, and raises when a limit
is reached. With `fullgraph` there is no `ConvertFrame`, and nothing to report: the exception reaches the user.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any, NamedTuple

from dynx._torch.compilation.frame import ending, limit_value


class AtLimit(NamedTuple):
    """A call that matches no cache entry and is not compiled because of a recompile limit.

    Do not store this object: it keeps the local variables of the call alive.
    """

    code: CodeType
    locals: Any
    globals: Any
    limit: str  # the name in torch._dynamo.config
    allowed: int | None  # its value


def report_at_limit(context: Any, report: Callable[[AtLimit], None]) -> None:
    """Call `report` when a function compiled by `context`, a result of `torch._dynamo.optimize`, reaches a recompile limit."""
    callback, convert_frame = context.callback, None
    while callback is not None:  # torch's wrappers copy attributes of the object they wrap: find the innermost
        convert_frame = callback if hasattr(callback, "_inner_convert") else convert_frame
        callback = getattr(callback, "_torchdynamo_orig_backend", None)
    if convert_frame is not None:
        convert_frame._inner_convert = _Reporting(convert_frame._inner_convert, report)


class _Reporting:
    """A wrapper of `ConvertFrame._inner_convert` that reports when the compilation raises at a recompile limit."""

    def __init__(self, convert: Any, report: Callable[[AtLimit], None]) -> None:
        self._convert, self._report = convert, report

    def __getattr__(self, name: str) -> Any:
        if name == "_convert":  # copy.copy() reads attributes before `_convert` is set
            raise AttributeError(name)
        return getattr(self._convert, name)

    def __call__(self, frame: Any, *args: Any, skip: int = 0, **kwargs: Any) -> Any:
        try:
            return self._convert(frame, *args, skip=skip + 1, **kwargs)
        except Exception as error:
            limit = ending(None, error, fullgraph=False).limit
            if limit is not None:
                of_function = getattr(self._convert, "_recompile_limit", None) if limit == "recompile_limit" else None
                allowed = of_function or limit_value(limit)
                self._report(AtLimit(frame.f_code, frame.f_locals, frame.f_globals, limit, allowed))
            raise
