"""The only place that replaces attributes of torch.

One wrapper stands at a hook point however many subscribers it has; the exact original is back when the last one leaves.
A subscriber is called before the original with its arguments and may return a function that is called after it. Whatever a
subscriber raises is reported to `on_error` and never reaches the program.
"""

from __future__ import annotations

import functools
import inspect
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from dynx.errors import UnsupportedTorch

After = Callable[[Any, BaseException | None], None]
Before = Callable[[tuple[Any, ...], dict[str, Any]], After | None]


@dataclass(frozen=True, slots=True)
class HookPoint:
    """An attribute of torch that dynx listens at: `module:Class.name` or `module:name`.

    `leading` are the parameters the subscribers rely on, by position; `named` those they find by keyword.
    """

    name: str
    path: str
    leading: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    purpose: str = ""
    skips: bool = False  # its parameter `skip` counts frames of the caller's stack, of which the wrapper is one more
    optional: bool = False  # some supported torch lacks it, and the purpose says what is lost


def owner_of(path: str) -> tuple[Any, str]:
    """Find the object that holds the attribute. Raises ImportError or AttributeError when torch has moved it."""
    module, _, qualname = path.partition(":")
    *parents, name = qualname.split(".")
    owner: Any = import_module(module)
    for parent in parents:
        owner = getattr(owner, parent)
    return owner, name


def parameters_of(path: str) -> tuple[str, ...]:
    """Give the parameters as text; empty for something without a signature. Raises like `owner_of`."""
    owner, name = owner_of(path)
    target = getattr(owner, name)
    try:
        parameters = inspect.signature(target).parameters.values()
        return tuple(re.sub(r" at 0x[0-9a-f]+", "", str(each)) for each in parameters)
    except (TypeError, ValueError):
        return ()


@dataclass
class _Installed:
    point: HookPoint
    owner: Any
    attribute: str
    raw: Any  # as it stands in the owner's dict: a function or a staticmethod object
    inherited: bool  # the owner only inherits it: restoring means deleting ours
    wrapper: Any
    subscribers: list[tuple[Before, int | None, Callable[[str, BaseException], None]]] = field(default_factory=list)


_installed: dict[str, _Installed] = {}
_lock = threading.RLock()


class Subscription:
    """A handle: `remove()` takes the subscriber away, and the wrapper with the last one. Also a context manager."""

    __slots__ = ("_entry", "_hook")

    def __init__(self, hook: _Installed, entry: tuple[Any, ...]) -> None:
        self._hook, self._entry = hook, entry

    def remove(self) -> None:
        with _lock:
            hook, self_entry = self._hook, self._entry
            remaining = [entry for entry in hook.subscribers if entry is not self_entry]
            if len(remaining) == len(hook.subscribers):
                return
            hook.subscribers = remaining
            if not remaining:
                _uninstall(hook)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def subscribe(
    point: HookPoint,
    before: Before,
    *,
    on_error: Callable[[str, BaseException], None],
    this_thread_only: bool = False,
) -> Subscription:
    """Call `before(args, kwargs)` ahead of each call at `point`; subscribers run in order of subscription.

    Raises UnsupportedTorch when the installed torch has no such attribute.
    """
    with _lock:
        hook = _installed.get(point.path)
        if hook is None:
            hook = _install(point)
        entry = (before, threading.get_ident() if this_thread_only else None, on_error)
        hook.subscribers = [*hook.subscribers, entry]  # a new list: calls under way keep theirs
        return Subscription(hook, entry)


def installed() -> tuple[str, ...]:
    """Name the hook points that are wrapped right now."""
    return (*_installed, *_wrapped)


Make = Callable[[Callable[..., Any]], Callable[..., Any]]  # of a function, makes one that calls it


@dataclass
class _Wrapped:
    owner: Any
    attribute: str
    raw: Any
    outermost: Any
    makers: list[Make]


_wrapped: dict[str, _Wrapped] = {}


class Wrapping:
    """A handle: `remove()` takes one wrapper away, whichever of several it is."""

    __slots__ = ("_make", "_path")

    def __init__(self, path: str, make: Make) -> None:
        self._path, self._make = path, make

    def remove(self) -> None:
        with _lock:
            found = _wrapped.get(self._path)
            if found is None or self._make not in found.makers:
                return
            found.makers.remove(self._make)
            _stack_up(self._path, found)


def wrap(point: HookPoint, make: Make) -> Wrapping:
    """Put `make(original)` in the place of a method, without the general wrapper: for what runs on every instruction.

    Several stand around each other in the order they came; the exact original is back when the last one leaves. What a wrapper
    raises reaches torch, so it must not. Raises UnsupportedTorch when the installed torch has no such attribute.
    """
    with _lock:
        found = _wrapped.get(point.path)
        if found is None:
            owner, name, original = _original(point)
            found = _wrapped[point.path] = _Wrapped(owner, name, original, original, [])
        found.makers.append(make)
        _stack_up(point.path, found)
        return Wrapping(point.path, make)


def _stack_up(path: str, found: _Wrapped) -> None:
    if vars(found.owner).get(found.attribute) is not found.outermost:
        return  # somebody else wrapped ours: leave theirs
    outermost = found.raw
    for make in found.makers:
        outermost = functools.wraps(found.raw)(make(outermost))
    setattr(found.owner, found.attribute, outermost)
    found.outermost = outermost
    if not found.makers:
        del _wrapped[path]


def _original(point: HookPoint) -> tuple[Any, str, Any]:
    try:
        owner, name = owner_of(point.path)
        return owner, name, getattr(owner, name)
    except (ImportError, AttributeError) as error:
        raise UnsupportedTorch(
            f"torch has no {point.path} ({point.purpose})\n  run `dynx doctor` to see what this torch supports"
        ) from error


def _install(point: HookPoint) -> _Installed:
    owner, name, original = _original(point)
    inherited = name not in vars(owner)
    raw = vars(owner).get(name, original)
    hook = _Installed(point, owner, name, raw, inherited, None)
    wrapper = _wrap(hook, original)
    hook.wrapper = staticmethod(wrapper) if isinstance(raw, staticmethod) else wrapper
    setattr(owner, name, hook.wrapper)
    _installed[point.path] = hook
    return hook


def _uninstall(hook: _Installed) -> None:
    del _installed[hook.point.path]
    if vars(hook.owner).get(hook.attribute) is not hook.wrapper:
        return  # somebody else wrapped ours: leave theirs; ours, without subscribers, only passes calls on
    if hook.inherited:
        delattr(hook.owner, hook.attribute)
    else:
        setattr(hook.owner, hook.attribute, hook.raw)


def _wrap(hook: _Installed, original: Callable[..., Any]) -> Callable[..., Any]:
    name = hook.point.name
    skips = hook.point.skips and "skip" in inspect.signature(original).parameters

    @functools.wraps(original)
    def dynx_hook(*args: Any, **kwargs: Any) -> Any:
        afters: list[tuple[After, Callable[[str, BaseException], None]]] = []
        for before, thread, on_error in hook.subscribers:
            if thread is not None and thread != threading.get_ident():
                continue
            try:
                after = before(args, dict(kwargs))
            except Exception as error:  # noqa: BLE001 - an observer that fails must not fail the program
                on_error(name, error)
                continue
            if after is not None:
                afters.append((after, on_error))
        if skips:
            kwargs["skip"] = kwargs.get("skip", 0) + 1
        if not afters:
            return original(*args, **kwargs)
        try:
            result = original(*args, **kwargs)
        except BaseException as raised:
            _call(name, afters, None, raised)
            raise
        _call(name, afters, result, None)
        return result

    return dynx_hook


def _call(
    name: str,
    afters: list[tuple[After, Callable[[str, BaseException], None]]],
    result: Any,
    raised: BaseException | None,
) -> None:
    for after, on_error in reversed(afters):
        try:
            after(result, raised)
        except Exception as error:  # noqa: BLE001 - see above
            on_error(name, error)
