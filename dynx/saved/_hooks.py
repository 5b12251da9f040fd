"""`hooks`: pack the tensors that are saved for backward, each with the codec that a rule selects."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, get_args

import torch

from dynx._torch.autograd.saved_tensors import own_error
from dynx._torch.capabilities import require
from dynx.errors import UsageError
from dynx.saved._digest import digest
from dynx.saved._graphs.inline import Schedule
from dynx.saved._observe import SavedGraphs
from dynx.saved._published import publish
from dynx.saved._rules import Rule

P = ParamSpec("P")
T = TypeVar("T")


class SavedHooks:
    """The context manager and decorator that `saved.hooks` returns; it can be entered repeatedly, and in several threads.

    Copies, also by pickle, have equal rules and cause no recompile; a copy is entered and exited independently of the original.
    """

    def __init__(self, rules: tuple[Rule, ...], cache_hash: str | None, *, validate: bool, schedule: Schedule) -> None:
        self.rules = rules
        key = digest(rules if cache_hash is None else tuple(map(str, rules)), cache_hash, validate, schedule)
        self._options: dict[str, Any] = {"cache_hash": cache_hash, "validate": validate, "schedule": schedule}
        self._published = publish(key, rules, validate=validate, schedule=schedule)
        self._entered = threading.local()
        self._global: tuple[str, str] | None = None  # module and name of the global that refers to it

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(SavedGraphs())
            stack.enter_context(torch.autograd.graph.saved_tensors_hooks(self._published.pack, self._published.unpack))
            self._stacks().append(stack.pop_all())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._stacks().pop().close()
        if (own := own_error(error)) is not None:
            raise own from None

    def __call__(self, fn: Callable[P, T]) -> Callable[P, T]:
        """Decorate a function: each call runs under the hooks."""

        @functools.wraps(fn)
        def hooked(*args: P.args, **kwargs: P.kwargs) -> T:
            with self:
                return fn(*args, **kwargs)

        return hooked

    def __copy__(self) -> SavedHooks:
        return SavedHooks(self.rules, **self._options)

    def __deepcopy__(self, memo: dict[int, Any]) -> SavedHooks:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        if self._global is not None and _global(*self._global) is self:
            return _global, self._global
        return functools.partial(hooks, **self._options), self.rules

    def _stacks(self) -> list[ExitStack]:
        stacks: list[ExitStack] = self._entered.__dict__.setdefault("stacks", [])
        return stacks

    def __repr__(self) -> str:
        return f"hooks({', '.join(map(str, self.rules))})"


def hooks(*rules: Rule, cache_hash: str | None = None, validate: bool = True, schedule: Schedule = "auto") -> SavedHooks:
    """Return a context manager for the forward pass that packs the tensors saved for backward.

    A compiled function that is called in the context has the codecs in its forward and backward graph, with every backend that
    uses AOTAutograd (inductor, aot_eager, dynx_cudagraphs). Eager code calls the codecs whenever it saves a tensor. A tensor is
    packed by the first rule that applies to it. New contexts with equal rules cause no recompile, and hit AOTAutograd's cache
    in a later process.

    Enter the context around the call of the compiled function: a `with` statement inside of the function breaks the graph.
    Under `torch.no_grad`, nothing is packed, and nothing is recompiled.

    Args:
        rules: Rules from `saved.rule(codec, ...)`, in order.
        cache_hash: A text that you change whenever a codec changes; it replaces the hash of the codecs' code, closures and
            globals. For codecs of your own that refer to objects that cannot be hashed.
        validate: Check at compile time that each codec restores the shape, dtype and device and draws no random numbers; warn
            if rounding changes a mask, or a tensor from which backward recomputes others.
        schedule: `"graph"`: pack a tensor after its last use in forward, and unpack it before its first use in backward.
            `"none"`: pack at the end of forward and unpack at the beginning of backward, as torch does. `"auto"`: `"none"` for
            inductor, which orders operators itself, else `"graph"`. For custom operators, as in `offload`, always `"graph"`.

    Returns:
        A context manager, which is also a decorator.

    Raises:
        UsageError: An argument has the wrong type, or a codec cannot be hashed.
        UnsupportedTorch: The installed torch lacks an internal function that dynx needs.
        BadCodec: A codec does not restore the shape, dtype or device. A compiled call raises it as `inner_exception` of
            torch's `BackendCompilerFailed`.

    Example:
        >>> import torch
        >>> from dynx import saved
        >>> model = torch.compile(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU()), backend="aot_eager")
        >>> with saved.hooks(saved.rule(saved.codecs.fp8(), min_numel=1024)):
        ...     loss = model(torch.randn(32, 64)).sum()
        >>> loss.backward()
    """
    for rule in rules:
        if not isinstance(rule, Rule):
            raise UsageError(f"{rule!r} is not a rule\n  pass saved.rule(codec, ...), such as saved.rule(saved.codecs.fp8())")
    if schedule not in get_args(Schedule):
        raise UsageError(f"schedule={schedule!r} is not known\n  pass one of {', '.join(map(repr, get_args(Schedule)))}")
    if cache_hash is not None and not isinstance(cache_hash, str):
        raise UsageError(f"cache_hash={cache_hash!r} is not a str\n  pass a text that you change whenever you change a codec")
    require("inline_hooks", "trace_hook", "top_hooks", "inlineable_hooks", "compiled_autograd_region")
    return SavedHooks(rules, cache_hash, validate=validate, schedule=schedule)


def _global(module: str, name: str) -> Any:
    """Return the object with this qualified name in a module; None if there is none. Used to unpickle hooks."""
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found
