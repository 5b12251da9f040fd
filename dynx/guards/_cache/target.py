"""Find the function that a call of a compiled callable runs, and the code objects that hold a callable's cache entries."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import partial
from types import CodeType, FunctionType, MappingProxyType, MethodType
from typing import Any, NamedTuple

from dynx._reading.user_location import first_line
from dynx._torch.cache import lookup
from dynx._torch.cache.pinned import is_precompiled
from dynx._torch.compilation import isolation, wrappers
from dynx._torch.compilation.frame import user_name
from dynx._torch.compilation.unwrap import code_of, function_of, unwrap
from dynx.errors import UsageError
from dynx.records import Location

_RUNS_LATER = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class CompiledCall(NamedTuple):
    """The compiled function that a call will run (`parts`), or why it is unknown before the call (`why_unknown`)."""

    parts: lookup.Compiled | None
    why_unknown: str | None = None
    is_disabled: bool = False  # nothing is compiled
    bound: tuple[Any, ...] = ()  # arguments to insert before those of the call: `self` of a method, those of a partial
    named: Mapping[str, Any] = MappingProxyType({})  # keyword arguments of a partial
    unknown: tuple[str, ...] = ()  # descriptions of further code that the call runs and may compile


def compiled_call_of(target: Any) -> CompiledCall:
    """Return which compiled function a call of `target` runs. Raises UsageError if `target` is not compiled."""
    if isinstance(target, MethodType):
        return compiled_call_of(target.__func__)._replace(bound=(target.__self__,))
    if isinstance(target, partial):
        call = compiled_call_of(target.func)
        return call._replace(bound=(*call.bound, *target.args), named={**call.named, **target.keywords})
    if getattr(target, "_torchdynamo_disable", False):
        return CompiledCall(None, "torch.compiler.disable", is_disabled=True)
    unwrapped = unwrap(target)
    module = unwrapped.module
    if module is not None and not unwrapped.is_compiled and _is_compiled_method(module.forward):
        why = wrappers.before_forward(module)
        return CompiledCall(None, why) if why else compiled_call_of(module.forward)
    if module is not None and module is not target and (why := wrappers.before_forward(target)):
        return CompiledCall(None, why)
    if not unwrapped.is_compiled and _is_compiled_method(type(target).__call__):
        return _call_of_instance(target, compiled_call_of(type(target).__call__))
    if not unwrapped.is_compiled and any(unwrap(layer.value).is_compiled for layer in unwrapped.layers[1:]):
        return CompiledCall(None, f"{_name(target)} is a wrapper, whose code runs before the compiled function that it wraps")
    run = unwrapped.compiled
    current = getattr(run, "dynx_now", None)  # set by dynx.compile: returns the function for torch's current configuration
    parts = lookup.compiled_parts(current() if current is not None else run)
    if parts is None:
        raise UsageError(f"{_name(target)} is not compiled\n  pass what torch.compile or dynx.compile returned for it")
    if module is None or not wrappers.is_module_call(parts.fn):
        return _unless_unknown(parts)
    return _call_of_module(module, parts)


def _call_of_module(module: Any, parts: lookup.Compiled) -> CompiledCall:
    if why := wrappers.before_forward(module):
        return CompiledCall(None, why)
    code = code_of(module.forward)
    if code is None:
        return CompiledCall(None, f"{_name(module)}.forward is not a Python function")
    call = _unless_unknown(parts._replace(fn=module.forward, code=code))
    return call._replace(unknown=tuple(f"the forward hook {name}" for name in wrappers.after_forward(module)))


def _call_of_instance(instance: Any, call: CompiledCall) -> CompiledCall:
    """Return the CompiledCall of an instance whose class has a compiled `__call__`; `call` is that method's CompiledCall."""
    if call.parts is not None and wrappers.is_module_call_code(call.parts.code):
        return _call_of_module(instance, call.parts)
    return call._replace(bound=(instance,))


def _unless_unknown(parts: lookup.Compiled) -> CompiledCall:
    if parts.code.co_flags & _RUNS_LATER:
        return CompiledCall(None, "the body of a generator or coroutine runs after the call, when it is iterated or awaited")
    return CompiledCall(None, "torch loaded precompiled code for it") if is_precompiled(parts.code) else CompiledCall(parts)


def codes_of(fn: Any) -> list[CodeType]:
    """List the code objects that hold the cache entries of a callable, compiled or not; code of resume functions is left out.

    Raises UsageError if the callable is a class or has no code object.
    """
    if isinstance(fn, type):
        raise UsageError(f"{_name(fn)} is a class, which has no cache entries\n  pass an instance or one of its methods")
    if isinstance(fn, partial) and unwrap(fn.func).is_compiled:
        return codes_of(fn.func)
    unwrapped = unwrap(fn)
    module = unwrapped.module
    if not unwrapped.is_compiled and unwrapped.function is None:
        raise UsageError(f"{_name(fn)} has no Python code that torch could compile\n  pass a function, method or module")
    function = unwrap(fn if module is None else module.forward).original
    functions = [function]
    if module is not None:
        call = unwrap(vars(fn).get("forward", function)).original  # torch may call a wrapper of its own instead of `forward`
        functions += [call] if call is not function else []
    codes = [code_of(function) for function in functions]
    if callable(function) and (codes[0] is None or hasattr(function, "__wrapped__")):
        codes += [user_code_of(fn), wrappers.shared_code()]  # torch may wrap objects and decorated functions
    copies = [copy for code in codes if code is not None for copy in (code, *isolation.copies_of(code))]
    if not copies:
        raise UsageError(f"{_name(fn)} has no Python code that torch could compile\n  pass a function, method or module")
    return list({id(code): code for code in copies}.values())


def user_code_of(fn: Any) -> CodeType | None:
    """Return the code object of the function that torch.compile and decorators wrap; for a module, of `forward`."""
    module = unwrap(fn).module
    function = function_of(unwrap(fn if module is None else module.forward).through("compiled", "method", "decorator"))
    return None if function is None else function.__code__


def definition_of(fn: Any) -> Location:
    """Return the file and line at which a callable is defined. Raises UsageError if it has no Python code."""
    return location_of(user_code_of(fn) or codes_of(fn)[0])


def location_of(code: CodeType) -> Location:
    return Location(code.co_filename, first_line(code), user_name(code.co_qualname))


def _is_compiled_method(method: Any) -> bool:
    return isinstance(method, (FunctionType, MethodType)) and unwrap(method).is_compiled


def _name(target: Any) -> str:
    return str(getattr(target, "__qualname__", None) or type(target).__qualname__)
