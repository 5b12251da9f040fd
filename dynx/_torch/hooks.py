"""Replace attributes of torch's modules and classes; no other module of dynx does so.

Three ways to do so, each returning a handle whose `remove()` undoes it:

- `subscribe` calls a function before, and optionally after, each call. What a subscriber raises is reported to `on_error`
  and never reaches the program.
- `wrap` puts a wrapper function around the attribute, with less overhead: for functions that run on every instruction.
- `replace` calls another function instead.

All of them share one function per attribute ("the entry"), which the owner, a module or class of torch, stores in place of the
original. It calls the subscribers, the wrappers and at last the original. Static methods, class methods and inherited methods
are supported: the entry is stored as the same kind of descriptor, and an inherited method is looked up along the method
resolution order of the receiver as before. When the last handle is removed, the owner stores the identical object again, or
nothing if it had inherited the attribute.

Other tools may patch the same attribute while the entry is stored. Such a patch is never removed: once all handles of the entry
below the patch are removed, this entry only passes calls on, and new handles get another entry above the patch.

Other modules of dynx may do the following without this module; `tests/seam/test_replacements.py` lists the cases and reasons:

- set an attribute of one object that torch created for one compilation or one compiled function, and that ends with it: the
  dispatch table of an `InstructionTranslator`, the backend call of an `OutputGraph`, the `_inner_convert` of a `ConvertFrame`.
  A class attribute would affect every compilation of the process;
- add an attribute with a name of dynx to such an object, or any attribute to an object that dynx created;
- use interfaces of torch and of Python that restore the state or have an inverse: `config.patch`, handlers of loggers,
  `substitute_in_graph`'s table of known objects, profile functions.
"""

from __future__ import annotations

import functools
import inspect
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from types import ClassMethodDescriptorType, CodeType
from typing import Any, cast
from weakref import WeakSet

from dynx._handle import Handle
from dynx.errors import UnsupportedTorch, UsageError

After = Callable[[Any, BaseException | None], None]
Before = Callable[[tuple[Any, ...], dict[str, Any]], After | None]
OnError = Callable[[str, BaseException], None]
Make = Callable[[Callable[..., Any]], Callable[..., Any]]  # takes a function and returns one that calls it

_MISSING = object()  # stands for the stored object of an attribute that the owner inherits, or of a missing one


@dataclass(frozen=True, slots=True)
class HookPoint:
    """The path of an attribute of torch that dynx hooks, `module:Class.name` or `module:name`, and what dynx needs it for.

    `leading` are the parameters that subscribers read by position; `named` those they read by keyword.
    """

    name: str
    path: str
    leading: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    purpose: str = ""
    skips: bool = False  # its parameter `skip` counts frames of the caller's stack, to which dynx adds its own
    optional: bool = False  # some supported torch lacks it; the purpose says what is lost without it


def owner_of(path: str) -> tuple[Any, str]:
    """Return the module or class in the path of an attribute (`module:Class.name`), and the attribute's name.

    Raises ImportError or AttributeError when the installed torch has no such module or class.
    """
    module, _, qualname = path.partition(":")
    *parents, name = qualname.split(".")
    owner: Any = import_module(module)
    for parent in parents:
        owner = getattr(owner, parent)
    return owner, name


def parameters_of(path: str) -> tuple[str, ...]:
    """Return, as text, the parameters of the function at a path (`module:Class.name`); empty if it has no signature.

    Raises ImportError or AttributeError when the installed torch has no such attribute.
    """
    owner, name = owner_of(path)
    target = getattr(owner, name)
    try:
        parameters = inspect.signature(target).parameters.values()
        return tuple(re.sub(r" at 0x[0-9a-f]+", "", str(parameter)) for parameter in parameters)
    except (TypeError, ValueError):
        return ()


def subscribe(
    point: HookPoint, before: Before, *, on_error: OnError, this_thread_only: bool = False, of_retraces: bool = False
) -> Subscription:
    """Call `before(args, kwargs)` before each call of the function at `point`.

    If `before` returns a function, it is called after the call: `after(result, None)`, or `after(None, exception)`. Subscribers
    run in the order of their subscription, outside of all wrappers. `args` begins with the instance for a method, and with the
    class for a class method. With `this_thread_only`, calls on other threads are ignored. Calls of a thread that is `retracing`
    are ignored too; with `of_retraces`, all other calls are. Raises UnsupportedTorch when the installed torch has no such
    attribute, or one of a kind that cannot be hooked.
    """
    with _lock:
        site = _site_at(point)
        thread = threading.get_ident() if this_thread_only else None
        subscriber = _Subscriber(point.name, before, thread, on_error, of_retraces)
        site.change([*site.subscribers, subscriber], site.wrappers)
        return Subscription(site, subscriber)


def wrap(point: HookPoint, make: Make, *, passes_on: bool = False) -> Wrapping:
    """Replace the function or method at `point` by `make(original)`, which may call `original`.

    The wrapper that was installed last is called first. `make` is called again whenever another hook of the same attribute is
    installed or removed. `original` takes the instance of a method, or the class of a class method, as its first argument. An
    exception that a wrapper raises reaches torch.

    With `passes_on` the caller promises that, after the handle is removed, the function that `make` returned does nothing but
    call `original`. If this is the only hook of a method without arguments, that function itself is stored in place of the
    method, which saves one frame per call.

    Raises UnsupportedTorch when the installed torch has no such attribute, or one of a kind that cannot be hooked, and
    UsageError when `make` does not return a callable.
    """
    with _lock:
        site = _site_at(point)
        wrapper = _Wrapper(make, passes_on)
        site.change(site.subscribers, [*site.wrappers, wrapper])
        return Wrapping(site, wrapper)


def replace(point: HookPoint, fn: Callable[..., Any]) -> Wrapping:
    """Call `fn` instead of the function or method at `point`; if there are several replacements, the newest is called.

    Raises UnsupportedTorch when the installed torch has no such attribute, or one of a kind that cannot be hooked, and
    UsageError when `fn` is not callable.
    """
    if not callable(fn):
        raise UsageError(f"the replacement of {point.path} is not callable: {fn!r}\n  pass a function with the same parameters")
    return wrap(point, lambda original: fn)


class _Thread(threading.local):
    retraces = False


_thread = _Thread()


def is_retracing() -> bool:
    """Return whether this thread traces for dynx, not for the program."""
    return _thread.retraces


class RunsUserCode(BaseException):
    """A trace for dynx has reached code of the program that would run at compile time. No handler of Dynamo catches it."""


def not_in_retraces() -> None:
    """Raise RunsUserCode if this thread traces for dynx, not for the program."""
    if _thread.retraces:
        raise RunsUserCode


@contextmanager
def retracing() -> Iterator[None]:
    """Declare that this thread traces for dynx, not for the program: subscribers that observe the program are not called."""
    before, _thread.retraces = _thread.retraces, True
    try:
        yield
    finally:
        _thread.retraces = before


def installed() -> tuple[str, ...]:
    """Return the paths of the attributes of torch that dynx currently hooks."""
    return tuple(dict.fromkeys(site.path for site in _active))


@dataclass(frozen=True, slots=True, eq=False)
class _Subscriber:
    point: str
    before: Before
    thread: int | None
    on_error: OnError
    of_retraces: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Wrapper:
    make: Make
    passes_on: bool


@dataclass(eq=False)
class _Site:
    """A hooked attribute: the function stored in its place (the entry), and the subscribers and wrappers that it calls."""

    path: str
    owner: Any
    attribute: str
    stored: Any  # what the owner's `__dict__` held before: a function or a descriptor; `_MISSING` if it is inherited
    original: Callable[..., Any]
    skips: bool
    entry: Any = None  # what the owner's `__dict__` holds now: `of_all`, or the only wrapper
    of_all: Any = None  # the entry that calls all hooks
    chain: tuple[Callable[..., Any], int] = field(init=False)  # the wrapped original; the number of frames that dynx adds
    subscribers: list[_Subscriber] = field(default_factory=list)
    wrappers: list[_Wrapper] = field(default_factory=list)
    takes_only_self: bool = False
    on_change: Callable[[], None] | None = None  # updates `of_all` after a change

    def __post_init__(self) -> None:
        self.chain = self.original, 1

    def is_stored(self) -> bool:
        return self.entry is not None and vars(self.owner).get(self.attribute) is self.entry

    def change(self, subscribers: list[_Subscriber], wrappers: list[_Wrapper]) -> None:
        """Set the subscribers and wrappers of the hooked attribute; restore the attribute when there are none.

        The lists must be new objects, since calls that are running on other threads continue with the lists and functions that
        they started with.
        """
        call = self.original
        for wrapper in wrappers:
            call = wrapper.make(call)
            if not callable(call):
                raise UsageError(
                    f"a wrapper of {self.path} must be a function, but {wrapper.make!r} returned {call!r}\n"
                    f"  return a function that takes the arguments of {self.path}"
                )
        is_first = not self.subscribers and not self.wrappers
        if is_first or (self.is_stored() and (subscribers or wrappers)):
            is_direct = self.takes_only_self and not subscribers and [wrapper.passes_on for wrapper in wrappers] == [True]
            entry = functools.wraps(self.original)(call) if is_direct else self.of_all
            if entry is not self.entry or not self.is_stored():
                self._store(entry)
        inherited = self.stored is _MISSING and isinstance(self.owner, type)  # then the original adds a frame too
        self.chain = call, 1 + len(wrappers) + inherited
        self.subscribers, self.wrappers = subscribers, wrappers
        if self.on_change is not None:
            self.on_change()
        if subscribers or wrappers:
            if self not in _active:
                _active.append(self)
        elif self in _active:
            _active.remove(self)
            self._restore()

    def _store(self, entry: Any) -> None:
        try:
            setattr(self.owner, self.attribute, entry)
        except (TypeError, AttributeError) as error:
            raise UnsupportedTorch(f"{self.path} cannot be replaced: {error}\n  {_RUN_DOCTOR}") from error
        self.entry = entry
        _sites.add(self)

    def _restore(self) -> None:
        if not self.is_stored():
            return  # another tool patched the entry: leave its patch; the entry passes calls on
        if self.stored is _MISSING:
            delattr(self.owner, self.attribute)
        else:
            setattr(self.owner, self.attribute, self.stored)


_RUN_DOCTOR = "run `dynx doctor` to see what this torch supports"
_lock = threading.RLock()
_active: list[_Site] = []  # with subscribers or wrappers
_sites: WeakSet[_Site] = WeakSet()  # also without hooks, if a patch of another tool keeps the entry alive


class _Installed(Handle):
    __slots__ = ("_part", "_site")

    def __init__(self, site: _Site, part: _Subscriber | _Wrapper) -> None:
        self._site, self._part = site, part

    def remove(self) -> None:
        """Remove this hook; torch's attribute is restored when its last hook is removed."""
        with _lock:
            site, part = self._site, self._part
            if part in site.subscribers or part in site.wrappers:
                subscribers = [subscriber for subscriber in site.subscribers if subscriber is not part]
                site.change(subscribers, [wrapper for wrapper in site.wrappers if wrapper is not part])


class Subscription(_Installed):
    """The handle that `subscribe` returns; `remove()` ends the subscription."""

    __slots__ = ()


class Wrapping(_Installed):
    """The handle that `wrap` or `replace` returns; `remove()` removes the wrapper or the replacement."""

    __slots__ = ()


def _site_at(point: HookPoint) -> _Site:
    """Return the `_Site` whose entry is stored at `point`; if there is none, create one for the attribute's current value."""
    try:
        owner, name = owner_of(point.path)
        getattr(owner, name)
    except (ImportError, AttributeError) as error:
        raise UnsupportedTorch(f"torch has no {point.path}, which dynx needs for: {point.purpose}\n  {_RUN_DOCTOR}") from error
    for site in tuple(_sites):
        if site.owner is owner and site.attribute == name and site.is_stored():
            return site
    return _new_site(point, owner, name)


def _new_site(point: HookPoint, owner: Any, name: str) -> _Site:
    stored = vars(owner).get(name, _MISSING) if hasattr(owner, "__dict__") else _MISSING
    definition = _definition(owner, name)
    function = _function_in(definition, point)
    bind = _binding(owner, definition)
    original = function
    if stored is _MISSING and isinstance(owner, type):
        original = functools.wraps(function)(_inherited(owner, name, bind))
    skips = point.skips and "skip" in inspect.signature(function).parameters
    site = _Site(point.path, owner, name, stored, original, skips)
    site.takes_only_self = stored is not _MISSING and not skips and _takes_only_self(owner, function, bind)
    entry_of = _entry_of_method if site.takes_only_self else _entry_of
    entry = _copy_methods(function, functools.wraps(function)(entry_of(site)))
    inherits_static = stored is _MISSING and bind is staticmethod
    site.of_all = _InheritedStaticMethod(entry, owner, name, definition) if inherits_static else bind(entry)
    return site


def _definition(owner: Any, name: str) -> Any:
    """Return what a class or one of its bases stores under a name, without binding it; for a module, its attribute."""
    if not isinstance(owner, type):
        return getattr(owner, name)
    return next((vars(cls)[name] for cls in owner.__mro__ if name in vars(cls)), _MISSING)


def _function_in(definition: Any, point: HookPoint) -> Callable[..., Any]:
    """Return the function inside a static or class method, or the function itself; raise UnsupportedTorch for other types."""
    function = definition.__func__ if isinstance(definition, (staticmethod, classmethod)) else definition
    if definition is _MISSING:
        why = "is an attribute of its metaclass"
    elif isinstance(function, type):
        why = "is a class"
    elif not callable(function):
        why = f"is not a function or method, but a {type(function).__name__}"
    else:
        return cast("Callable[..., Any]", function)
    raise UnsupportedTorch(f"{point.path} cannot be hooked: it {why}; dynx needs it for: {point.purpose}\n  {_RUN_DOCTOR}")


def _binding(owner: Any, definition: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator, such as `classmethod`, that makes a function bind its first argument as `definition` does."""
    if isinstance(owner, type) and isinstance(definition, (classmethod, ClassMethodDescriptorType)):
        return classmethod
    if isinstance(owner, type) and (isinstance(definition, staticmethod) or not hasattr(type(definition), "__get__")):
        return staticmethod  # a built-in function or a callable object binds nothing
    return lambda function: function


def _inherited(owner: type, name: str, bind: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls the method that `owner` inherits, as if `owner` did not override it."""

    def inherited(*args: Any, **kwargs: Any) -> Any:
        if bind is not staticmethod and args:
            receiver_class = args[0] if bind is classmethod else type(args[0])
            if isinstance(receiver_class, type) and owner in receiver_class.__mro__:
                return getattr(super(owner, args[0]), name)(*args[1:], **kwargs)
        return getattr(super(owner, owner), name)(*args, **kwargs)

    return inherited


class _InheritedStaticMethod(staticmethod):  # type: ignore[type-arg]
    """A hook of a static method that a class inherits.

    With multiple inheritance, a subclass of the class may find the method in another base class: its calls are not hooked.
    """

    def __init__(self, function: Callable[..., Any], owner: type, name: str, definition: Any) -> None:
        super().__init__(function)
        self._owner, self._name, self._definition = owner, name, definition

    def __get__(self, instance: Any, cls: type | None = None) -> Callable[..., Any]:
        cls = type(instance) if cls is None else cls
        behind = cls.__mro__[cls.__mro__.index(self._owner) + 1 :]
        definition = next((vars(base)[self._name] for base in behind if self._name in vars(base)), self._definition)
        if definition is self._definition or cls is self._owner:
            return super().__get__(instance, cls)
        return cast("Callable[..., Any]", getattr(super(self._owner, cls), self._name))


def _copy_methods(function: Any, entry: Any) -> Callable[..., Any]:
    """Copy the attributes of `function` that `entry` lacks, such as `cache_clear` of a cached function; return `entry`."""
    for name in dir(function):
        if not hasattr(entry, name):
            setattr(entry, name, getattr(function, name))
    return cast("Callable[..., Any]", entry)


def _entry_of(site: _Site) -> Callable[..., Any]:
    """Return the function to store in place of the attribute of `site`; it calls the subscribers, wrappers and the original."""

    def dynx_hook(*args: Any, **kwargs: Any) -> Any:
        call, frames = site.chain
        if not site.subscribers and not site.skips:  # the fast path of wrappers that run for every instruction
            return call(*args, **kwargs)
        afters = _announce(site.subscribers, args, kwargs)
        if site.skips:
            kwargs["skip"] = kwargs.get("skip", 0) + frames
        return _finish(call, args, kwargs, afters) if afters else call(*args, **kwargs)

    return dynx_hook


Afters = list[tuple[_Subscriber, After]]


def _announce(subscribers: list[_Subscriber], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Afters:
    """Call the subscribers before a hooked call; return the functions that they want to be called after it, with its result."""
    afters: Afters = []
    for subscriber in subscribers:
        if subscriber.of_retraces != _thread.retraces:
            continue
        if subscriber.thread is not None and subscriber.thread != threading.get_ident():
            continue
        try:
            after = subscriber.before(args, dict(kwargs))
        except Exception as error:  # noqa: BLE001 - an observer that fails must not fail the program
            subscriber.on_error(subscriber.point, error)
            continue
        if after is not None:
            afters.append((subscriber, after))
    return afters


def _finish(call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], afters: Afters) -> Any:
    try:
        result = call(*args, **kwargs)
    except BaseException as raised:
        _call(afters, None, raised)
        raise
    _call(afters, result, None)
    return result


def _takes_only_self(owner: Any, function: Callable[..., Any], bind: Callable[..., Any]) -> bool:
    if not isinstance(owner, type) or bind in (staticmethod, classmethod):
        return False
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False
    return [parameter.kind for parameter in parameters] == [inspect.Parameter.POSITIONAL_OR_KEYWORD]


def _entry_of_method(site: _Site) -> Callable[..., Any]:
    """Return the function to store in place of a method without parameters, such as `InstructionTranslatorBase.step`.

    Torch nests calls of these methods. Python's interpreter evaluates a call with fixed parameters without another C call. A
    call with `*args` needs another C call, which makes a trace 5 to 7 % slower.
    """
    call: Callable[..., Any] = site.original
    subscribers: list[_Subscriber] = []

    def dynx_hook(self: Any) -> Any:
        if subscribers and (afters := _announce(subscribers, (self,), {})):
            return _finish(call, (self,), {}, afters)
        return call(self)

    def changed() -> None:
        nonlocal call, subscribers
        call, subscribers = site.chain[0], site.subscribers

    site.on_change = changed
    return dynx_hook


def _call(afters: Afters, result: Any, raised: BaseException | None) -> None:
    for subscriber, after in reversed(afters):
        try:
            after(result, raised)
        except Exception as error:  # noqa: BLE001 - an observer that fails must not fail the program
            subscriber.on_error(subscriber.point, error)


def codes_of_a_call() -> tuple[CodeType, ...]:
    """Return the code that a hooked attribute runs besides its hooks."""
    entries = (
        code for entry in (_entry_of, _entry_of_method) for code in entry.__code__.co_consts if isinstance(code, CodeType)
    )
    return *entries, _announce.__code__, _finish.__code__, _call.__code__
