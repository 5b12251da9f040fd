"""Decide which cache entries belong to a callable, and notify a listener when the callable gets a new entry.

torch compiles built-in modules, callable objects and some decorated functions in one wrapper, so that their cache entries are
all attached to the wrapper's code object.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from types import CodeType
from typing import Any, NamedTuple
from weakref import ref

from dynx._torch import hooks
from dynx._torch.cache.entries import with_resume_functions
from dynx._torch.cache.entry import RawEntry
from dynx._torch.cache.guard_tree import tree_of
from dynx._torch.capabilities import hook_point
from dynx._torch.compilation.frame import compile_call, guards_of
from dynx._torch.compilation.unwrap import unwrap
from dynx._torch.compilation.wrappers import is_shared
from dynx._torch.hooks import After
from dynx._torch.tracing.line_hook import original_code
from dynx._trace.dispatch import trouble
from dynx._trace.guards.records import node_of
from dynx.guards._cache.target import codes_of, user_code_of

_AN_ID = re.compile(r"\b\d{6,}\b")


class CacheOwner(NamedTuple):
    """The identity of a callable with cache entries: its code objects, class and user code. It keeps none of them alive."""

    code_refs: tuple[ref[CodeType], ...]
    class_name: str | None  # `str()` of the class of a module or another callable object
    user_code_id: int | None

    @property
    def codes(self) -> list[CodeType]:
        return [code for code_ref in self.code_refs if (code := code_ref()) is not None]

    def entries(self) -> list[RawEntry]:
        """List the cache entries of the callable and of its resume functions, for each code object the oldest first."""
        return [entry for entry in with_resume_functions(self.codes) if self.has(entry.guards, entry.code)]

    def has(self, guards: Any, code: CodeType) -> bool:
        """Return whether the cache entry with these guards belongs to this callable, not to another with the same code object.

        Callables that torch calls through one wrapper share the code object of this wrapper, whose variable `fn` is the
        callable. An entry belongs to each callable whose class or code its guards on `fn` expect; without such guards, to all.
        """
        if not is_shared(code):
            return True
        all_guards = (guard for _, node in node_of(tree_of(guards), code, None).walk() for guard in node.guards)
        on_callable = [guard for guard in all_guards if guard.source.startswith("fn")]
        types = {guard.expected for guard in on_callable if guard.source == "fn" and guard.kind == "type"}
        if types:
            return self.class_name in types
        code_ids = {int(text) for guard in on_callable if guard.kind == "function" for text in _AN_ID.findall(guard.text)}
        return not code_ids or self.user_code_id in code_ids


def cache_owner(fn: Any) -> CacheOwner:
    """Return the CacheOwner of a callable, compiled or not. Raises UsageError if it is a class or has no Python code."""
    codes, user_code = codes_of(fn), user_code_of(fn)
    unwrapped = unwrap(fn)
    called = unwrapped.module if unwrapped.module is not None else unwrapped.through("compiled", "decorator")
    class_name = None if hasattr(called, "__code__") else str(type(called))
    return CacheOwner(tuple(map(ref, codes)), class_name, None if user_code is None else id(user_code))


def on_compiled(owner: CacheOwner, listener: Callable[[str, Any], None], *, what: str) -> hooks.Subscription:
    """Call `listener(compile_id, guard_manager)` for each new cache entry of a callable and of its resume functions.

    `remove()` of the returned subscription ends these calls. If `listener` raises an error, dynx reports the error as a failure
    of `what`, such as "count_hits".
    """

    def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> After | None:
        call = compile_call(args, kwargs)
        compiled_codes = call.code, original_code(call.code)
        if not any(owned is code for owned in owner.codes for code in compiled_codes):
            return None

        def after(result: Any, raised: BaseException | None) -> None:
            guards = None if raised is not None else guards_of(result)
            if guards is not None and owner.has(guards, call.code):
                listener(call.id, guards)

        return after

    return hooks.subscribe(hook_point("compile"), before, on_error=lambda hook, error: trouble(what, error))
