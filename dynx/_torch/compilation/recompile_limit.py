"""Hear of a function that reaches a limit of recompiles, without wrapping anything of torch's own.

Torch: each compiled function has a `ConvertFrame` of its own behind its callback, whose `_inner_convert` compiles and raises
at a limit; with `fullgraph` there is none, and what it raises reaches the user. Alike in 2.11, 2.13 and 2.15.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any, NamedTuple

from dynx._torch.compilation.frame import ending, limit_value


class AtLimit(NamedTuple):
    """A call that fits nothing and may not compile any more; holds what lives only during the call."""

    code: CodeType
    locals: Any
    globals: Any
    limit: str  # the name in torch._dynamo.config
    allowed: int | None


def tell_at_limit(context: Any, tell: Callable[[AtLimit], None]) -> None:
    """Call `tell` when a function that is compiled with this context (`torch._dynamo.optimize`) reaches a limit."""
    convert, found = context.callback, None
    while convert is not None:  # torch's own wrappers take the attributes of what they wrap
        found = convert if hasattr(convert, "_inner_convert") else found
        convert = getattr(convert, "_torchdynamo_orig_backend", None)
    if found is not None:
        found._inner_convert = _Telling(found._inner_convert, tell)


class _Telling:
    """Compiles as torch does."""

    def __init__(self, convert: Any, tell: Callable[[AtLimit], None]) -> None:
        self._convert, self._tell = convert, tell

    def __getattr__(self, name: str) -> Any:
        if name == "_convert":  # of a copy that is being made
            raise AttributeError(name)
        return getattr(self._convert, name)

    def __call__(self, frame: Any, *args: Any, skip: int = 0, **kwargs: Any) -> Any:
        try:
            return self._convert(frame, *args, skip=skip + 1, **kwargs)
        except Exception as error:
            limit = ending(None, error, fullgraph=False).limit
            if limit is not None:
                own = getattr(self._convert, "_recompile_limit", None) if limit == "recompile_limit" else None
                self._tell(AtLimit(frame.f_code, frame.f_locals, frame.f_globals, limit, own or limit_value(limit)))
            raise
