"""Which code a compiled function or module runs first."""

from __future__ import annotations

from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

from dynx._torch import compiling, dry_run
from dynx._trace.values import is_module
from dynx.errors import UsageError


class Called(NamedTuple):
    """What a call leads to: the parts of the compiled function, or why that cannot be told before the call."""

    compiled: dry_run.Compiled | None
    why_not: str | None = None


def called(target: Any) -> Called:
    """Find what a call of something compiled runs. Raises UsageError for what is not compiled."""
    module = compiling.original_module(target)
    if module is not None and module is not target and (before := compiling.before_forward(target)):
        return Called(None, before)
    run = target if module is None else compiling.compiled_call(target)
    now = getattr(run, "dynx_now", None)
    parts = dry_run.compiled_parts(now() if now is not None else run)
    if parts is None:
        raise UsageError(
            f"{_name(target)} is not compiled\n  give what torch.compile or dynx.compile made, not what they were given"
        )
    if module is None or not compiling.is_module_call(parts.fn):
        return Called(parts)
    if before := compiling.before_forward(module):
        return Called(None, before)
    forward = module.forward
    function = forward.__func__ if isinstance(forward, MethodType) else forward
    if not isinstance(function, FunctionType):
        return Called(None, f"{_name(module)}.forward is no Python function")
    return Called(parts._replace(fn=forward, code=function.__code__))


def codes_of(target: Any) -> list[CodeType]:
    """List the code of a function or module, compiled or not, and its copies, without the rests after graph breaks."""
    module = target if is_module(target) else None
    original = compiling.original_module(target) or module
    function = original.forward if original is not None else compiling.innermost(target)
    functions = [function]
    if original is not None:
        functions += [each for each in (compiling.innermost(vars(target).get("forward", function)),) if each is not function]
    found: dict[int, CodeType] = {}
    for each in functions:
        code = getattr(each.__func__ if isinstance(each, MethodType) else each, "__code__", None)
        if isinstance(code, CodeType):
            found.update((id(one), one) for one in (code, *compiling.copies_of(code)))
    if not found:
        raise UsageError(f"{_name(target)} has no Python code that torch could compile\n  give a function, method or module")
    return list(found.values())


def _name(target: Any) -> str:
    return str(getattr(target, "__qualname__", None) or type(target).__qualname__)
