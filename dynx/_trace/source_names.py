"""Name guarded values as the user's code does, where torch names them as its own wrapper or CPython does."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import CodeType, FunctionType, MethodType
from typing import Any

from dynx._torch.compilation.wrappers import is_shared
from dynx._trace import safe_read
from dynx.records import Reason

_POSITIONAL = re.compile(r"^args\[(\d+)\]")
_KEYWORD = re.compile(r"^kwargs\['(\w+)'\]")
_CELL = re.compile(r"(?P<function>.+)\.__closure__\[(?P<index>\d+)\]\.cell_contents")


def in_words_of_the_user(
    reasons: Sequence[Reason], code: CodeType, locals: Mapping[str, Any], globals: Mapping[str, Any]
) -> list[Reason]:
    """Rename the sources of failed guards, and drop those that belong to another function behind torch's wrapper.

    torch compiles methods of `nn.Module` under `torch.no_grad`, and callables without Python code, through one function,
    `wrap_inline(fn)`: `fn.step` is `self.step` there, and `args[0]` the first parameter of `fn`.
    """
    if is_shared(code):
        own = [reason for reason in reasons if reason.source != "fn" or reason.kind not in ("function", "object", "type")]
        names = _parameters(locals.get("fn"))
        reasons = [replace(reason, source=_unwrapped(reason.source, locals.get("fn"), names)) for reason in own or reasons]
    return [replace(reason, source=_of_closure(reason.source, locals, globals)) for reason in reasons]


def _parameters(function: Any) -> tuple[str, ...]:
    """Return the names of the positional parameters of a callable, without `self`."""
    if safe_read.is_module(function):
        function = MethodType(type(function).forward, function)
    target = function.__func__ if type(function) is MethodType else function
    if type(target) is not FunctionType:
        return ()
    names = target.__code__.co_varnames[: target.__code__.co_argcount]
    return names[1:] if type(function) is MethodType else names


def _unwrapped(source: str, function: Any, parameters: tuple[str, ...]) -> str:
    for prefix in ("fn.__self__", "fn") if type(function) is MethodType or safe_read.is_module(function) else ():
        if source == prefix or source.startswith((f"{prefix}.", f"{prefix}[")):
            return f"self{source.removeprefix(prefix)}"
    match = _POSITIONAL.match(source)
    if match and int(match[1]) < len(parameters):
        return f"{parameters[int(match[1])]}{source[match.end() :]}"
    return _KEYWORD.sub(lambda match: match[1], source)


def _of_closure(source: str, locals: Mapping[str, Any], globals: Mapping[str, Any]) -> str:
    """Name a variable of a closure, `strength of penalty`, for `penalty.__closure__[0].cell_contents`."""
    match = _CELL.match(source)
    function = safe_read.resolve(match["function"], locals, globals) if match else None
    if match is None or type(function) is not FunctionType:
        return source
    names = function.__code__.co_freevars
    index = int(match["index"])
    return f"{names[index]}{source[match.end() :]}" if index < len(names) else source
