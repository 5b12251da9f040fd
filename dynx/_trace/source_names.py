"""Rename guarded values to the names in the user's code. torch's names can be `fn.step`, `args[0]` or `___stack0`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import CO_VARARGS
from types import CodeType, FunctionType, MethodType
from typing import Any

from dynx._bytecode import safe_read
from dynx._reading.user_location import code_at
from dynx._torch.compilation.frame import resumed_at
from dynx._torch.compilation.wrappers import is_shared
from dynx._trace.guards.of_captures import in_words_of_hooks
from dynx.records import Location, Reason

WRAPPED = "the function behind torch's wrapper"  # source of a guard on a function that torch compiles through wrap_inline
_POSITIONAL = re.compile(r"^args\[(\d+)\]")
_KEYWORD = re.compile(r"^kwargs\['(\w+)'\]")
_CELL = re.compile(r"(?P<function>.+)\.__closure__\[(?P<index>\d+)\]\.cell_contents")
_ITEM_OF_DICT = re.compile(r"dict\.__getitem__\((?P<dict>[\w.\[\]']+), list\(dict\.keys\((?P=dict)\)\)\[(?P<index>\d+)\]\)")
_STACK = re.compile(r"\b___stack\d+\b")
_ASSIGNED = re.compile(r"(?P<name>[A-Za-z_]\w*)\s*(?::[^=]+)?=(?!=)")


def in_words_of_the_user(
    reasons: Sequence[Reason], code: CodeType, locals: Mapping[str, Any], globals: Mapping[str, Any]
) -> list[Reason]:
    """Rename guarded values as in the user's code, and drop the failed guards of cache entries for other callables.

    torch compiles all callables without Python code as one function, `wrap_inline(fn)`. In its guards, `self.step` is
    `fn.step`, and the first parameter of `fn` is `args[0]`. A decorator, such as `torch.no_grad()`, hides the parameters too.
    After a graph break, values on Python's stack become arguments of the resume function, with names such as `___stack0`.
    """
    of_torch = reasons
    if is_shared(code):
        own = [reason for reason in reasons if reason.source != "fn" or reason.kind not in ("function", "object", "type")]
        names = _parameters(locals.get("fn"))
        reasons = [_renamed(reason, _unwrapped(reason.source, locals.get("fn"), names)) for reason in own]
        reasons = reasons or [replace(each, kind="function", source=WRAPPED, expected=None) for each in of_torch]
    elif code.co_flags & CO_VARARGS:
        names = _parameters_of_wrapped(code, locals)[code.co_argcount :]  # `wrapper(self, *args)` takes the first parameters
        reasons = [_renamed(reason, _by_parameter(reason.source, names)) for reason in reasons]
    reasons = [replace(reason, holder="object") if _is_free(reason, code) else reason for reason in reasons]
    line = resumed_at(code)
    if line is not None:
        on_stack = partial(_STACK.sub, lambda match: _of_stack(match[0], code, line))
        reasons = [
            replace(reason, source=on_stack(reason.source), expected=reason.expected and on_stack(reason.expected))
            for reason in reasons
        ]
    reasons = [replace(reason, source=_of_closure(reason.source, locals, globals)) for reason in reasons]
    reasons = [replace(reason, source=_with_keys(reason.source, locals, globals)) for reason in reasons]
    return in_words_of_hooks(of_torch, reasons, code)


def in_frame(source: str, code: CodeType, locals: Mapping[str, Any]) -> str:
    """Return the source of a value in the variables of a frame: `args[0]` for the parameter `x` that torch's wrapper hides."""
    if is_shared(code):
        names = _parameters(locals.get("fn"))
    else:
        names = _parameters_of_wrapped(code, locals)[code.co_argcount :] if code.co_flags & CO_VARARGS else ()
    name = re.split(r"\W", source, maxsplit=1)[0]
    if name in locals or name not in names:
        return source
    is_positional = names.index(name) < len(locals.get("args", ()))
    return f"{f'args[{names.index(name)}]' if is_positional else f'kwargs[{name!r}]'}{source.removeprefix(name)}"


def _renamed(reason: Reason, source: str) -> Reason:
    """Return a copy of the reason in which the guarded value is called `source`.

    If `source` is a parameter that torch named as an item of `args` or `kwargs`, the value is marked as an argument.
    """
    is_argument = source != reason.source and source.isidentifier() and reason.source.startswith(("args[", "kwargs["))
    return replace(reason, source=source, holder="argument" if is_argument else reason.holder)


def _parameters_of_wrapped(code: CodeType, locals: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the positional parameters of the function that a decorator wraps; empty if it has no, or several, candidates."""
    functions = [locals[name] for name in code.co_freevars if type(locals.get(name)) in (FunctionType, MethodType)]
    functions = [function for function in functions if not function.__module__.startswith("torch.")]
    return _parameters(functions[0]) if len(functions) == 1 else ()


def _is_free(reason: Reason, code: CodeType) -> bool:
    """Return whether a guarded value is a free variable of the code, which torch lists with the arguments."""
    return reason.holder == "argument" and re.split(r"\W", reason.source, maxsplit=1)[0] in code.co_freevars


def _of_stack(name: str, code: CodeType, line: int) -> str:
    """Name a value that was on Python's stack at a graph break: by the variable that it is assigned to, or by its line.

    If `start = time.time()` broke the graph, and its result is the only value on the stack, the name is `start`.
    """
    on_stack = [each for each in code.co_varnames[: code.co_argcount] if _STACK.match(each)]
    statement = code_at(Location(code.co_filename, line, code.co_name))
    assigned = _ASSIGNED.match(statement)
    if assigned is not None and on_stack == [name] and statement.endswith(")"):
        return assigned["name"]
    return f"<value of line {line}>"


def _with_keys(source: str, locals: Mapping[str, Any], globals: Mapping[str, Any]) -> str:
    """Write an item of a dict with its key: `c['a']` for `dict.__getitem__(c, list(dict.keys(c))[0])`."""

    def named(match: re.Match[str]) -> str:
        texts = safe_read.key_texts(match["dict"], locals, globals)
        index = int(match["index"])
        return f"{match['dict']}[{texts[index]}]" if texts is not None and index < len(texts) else match[0]

    return _ITEM_OF_DICT.sub(named, source)


def _parameters(function: Any) -> tuple[str, ...]:
    """Return the names of the positional parameters of a callable, without `self`."""
    if safe_read.is_module(function):
        function = MethodType(type(function).forward, function)
    target = function.__func__ if type(function) is MethodType else function
    while type(target) is FunctionType and type(vars(target).get("__wrapped__")) is FunctionType:
        target = vars(target)["__wrapped__"]  # behind a decorator, such as torch.no_grad()
    if type(target) is not FunctionType:
        return ()
    names = target.__code__.co_varnames[: target.__code__.co_argcount]
    return names[1:] if type(function) is MethodType else names


def _unwrapped(source: str, function: Any, parameters: tuple[str, ...]) -> str:
    if type(function) is partial and source.startswith("fn."):
        return f"partial{source.removeprefix('fn')}"
    for prefix in ("fn.__self__", "fn") if type(function) is MethodType or safe_read.is_module(function) else ():
        if source == prefix or source.startswith((f"{prefix}.", f"{prefix}[")):
            return f"self{source.removeprefix(prefix)}"
    return _KEYWORD.sub(lambda match: match[1], _by_parameter(source, parameters))


def _by_parameter(source: str, parameters: tuple[str, ...]) -> str:
    match = _POSITIONAL.match(source)
    if match and int(match[1]) < len(parameters):
        return f"{parameters[int(match[1])]}{source[match.end() :]}"
    return source


def _of_closure(source: str, locals: Mapping[str, Any], globals: Mapping[str, Any]) -> str:
    """Return the name of a closure variable, such as `strength` for `penalty.__closure__[0].cell_contents`."""
    match = _CELL.match(source)
    function = safe_read.resolve(match["function"], locals, globals) if match else None
    if match is None or type(function) is not FunctionType:
        return source
    names = function.__code__.co_freevars
    index = int(match["index"])
    return f"{names[index]}{source[match.end() :]}" if index < len(names) else source
