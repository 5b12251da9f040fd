"""Which code a compiled function or module runs first."""

from __future__ import annotations

import inspect
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

from dynx._torch.cache import lookup
from dynx._torch.cache.pinned import is_precompiled
from dynx._torch.compilation import isolation, wrappers
from dynx._torch.compilation.frame import user_name
from dynx._trace.safe_read import is_module
from dynx._trace.user_location import first_line
from dynx.errors import UsageError
from dynx.records import Location

_RUNS_LATER = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class Called(NamedTuple):
    """What a call leads to: the parts of the compiled function, or why that cannot be told before the call."""

    compiled: lookup.Compiled | None
    why_not: str | None = None
    is_off: bool = False  # nothing is compiled
    first: tuple[Any, ...] = ()  # arguments before those of the call: the object of a method


def called(target: Any) -> Called:
    """Find what a call of something compiled runs. Raises UsageError for what is not compiled."""
    if isinstance(target, MethodType):
        return called(target.__func__)._replace(first=(target.__self__,))
    if getattr(target, "_torchdynamo_disable", False):
        return Called(None, "torch.compiler.disable", is_off=True)
    module = wrappers.original_module(target)
    if module is None and is_module(target) and _is_compiled_method(target.forward):
        before = wrappers.before_forward(target)
        return Called(None, before) if before else called(target.forward)
    if module is not None and module is not target and (before := wrappers.before_forward(target)):
        return Called(None, before)
    run = target if module is None else wrappers.compiled_call(target)
    now = getattr(run, "dynx_now", None)
    parts = lookup.compiled_parts(now() if now is not None else run)
    if parts is None:
        raise UsageError(
            f"{_name(target)} is not compiled\n  give what torch.compile or dynx.compile made, not what they were given"
        )
    if module is None or not wrappers.is_module_call(parts.fn):
        return _unless_precompiled(parts)
    if before := wrappers.before_forward(module):
        return Called(None, before)
    forward = module.forward
    function = forward.__func__ if isinstance(forward, MethodType) else forward
    if not isinstance(function, FunctionType):
        return Called(None, f"{_name(module)}.forward is no Python function")
    return _unless_precompiled(parts._replace(fn=forward, code=function.__code__))


def _unless_precompiled(parts: lookup.Compiled) -> Called:
    if parts.code.co_flags & _RUNS_LATER:
        return Called(None, "generators and coroutines run when somebody asks for what they give")
    return Called(None, "torch loaded precompiled versions of it") if is_precompiled(parts.code) else Called(parts)


def codes_of(target: Any) -> list[CodeType]:
    """List the code of a function or module, compiled or not, and its copies, without the rests after graph breaks."""
    module = target if is_module(target) else None
    original = wrappers.original_module(target) or module
    function = wrappers.innermost(original.forward if original is not None else target)
    functions = [function]
    if original is not None:
        functions += [each for each in (wrappers.innermost(vars(target).get("forward", function)),) if each is not function]
    found: dict[int, CodeType] = {}
    codes = [getattr(each.__func__ if isinstance(each, MethodType) else each, "__code__", None) for each in functions]
    if callable(function) and (codes[0] is None or hasattr(function, "__wrapped__")):
        codes += [user_code_of(target), wrappers.shared_code()]  # torch may wrap objects and decorated functions
    for code in codes:
        if isinstance(code, CodeType):
            found.update((id(one), one) for one in (code, *isolation.copies_of(code)))
    if not found:
        raise UsageError(f"{_name(target)} has no Python code that torch could compile\n  give a function, method or module")
    return list(found.values())


def user_code_of(target: Any) -> CodeType | None:
    """Give the code that a person wrote: behind compiled functions and decorators; that of `forward` for a module."""
    module = wrappers.original_module(target) or (target if is_module(target) else None)
    function = inspect.unwrap(wrappers.innermost(module.forward if module is not None else target))
    function = getattr(function, "__func__", function)  # of a method
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)  # of an object
    return code if isinstance(code, CodeType) else None


def place_of(target: Any) -> Location:
    """Give where a function or module was written. Raises UsageError for what has no Python code."""
    return location_of(user_code_of(target) or codes_of(target)[0])


def location_of(code: CodeType) -> Location:
    return Location(code.co_filename, first_line(code), user_name(code.co_qualname))


def _is_compiled_method(method: Any) -> bool:
    return isinstance(method, MethodType) and wrappers.innermost(method) is not method


def _name(target: Any) -> str:
    return str(getattr(target, "__qualname__", None) or type(target).__qualname__)
