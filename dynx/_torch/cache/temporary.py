"""Remove what temporary compilations leave: cache entries, decisions to skip frames, global names, changed counters.

Torch: `convert_frame.register_bytecode_hook`, whose hooks are called with the code object of each frame that Dynamo compiles
and the compiled code; `utils.CleanupManager`, which removes most names that Dynamo adds to globals; and `utils.counters`. Torch
does not remove names such as `__import_torch` from globals, nor their modules from the cache of
`symbolic_convert._import_module`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

from dynx._torch.cache.entries import entries_of
from dynx._torch.cache.eviction import reset
from dynx._torch.capabilities import hook_point, require
from dynx._torch.compilation.frame import compile_call
from dynx._torch.hooks import subscribe

_OF_DYNAMO = "__import_"  # other names are removed by `_remove_names_of`


@contextmanager
def nothing_remains() -> Iterator[None]:
    """Undo the compilations inside this context.

    Remove the cache entries of code that had none before, and the names that Dynamo added to globals; restore torch's counters.
    """
    require("bytecode_hook", "counters", "global_names", "module_cache")
    from torch._dynamo.convert_frame import register_bytecode_hook
    from torch._dynamo.symbolic_convert import _import_module
    from torch._dynamo.utils import counters

    new: dict[CodeType, list[CodeType]] = {}  # the compiled versions of each code object
    known: set[CodeType] = set()

    def on_compile(code: CodeType, compiled: CodeType) -> None:
        if code not in known:
            known.add(code)
            if not entries_of(code):
                new[code] = []
        if code in new:
            new[code].append(compiled)

    def before_compile(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        scope: Any = compile_call(args, kwargs).globals
        scopes.setdefault(id(scope), (scope, _names_of_dynamo(scope)))

    def on_error(name: str, error: BaseException) -> None:
        raise error

    scopes: dict[int, tuple[dict[str, Any], set[str]]] = {}
    before = {name: Counter(values) for name, values in counters.items()}
    _import_module.cache_clear()  # it may hold a module that was replaced by another module of the same name
    subscription = subscribe(hook_point("compile"), before_compile, on_error=on_error, this_thread_only=True)
    handle = register_bytecode_hook(on_compile)
    try:
        yield
    finally:
        handle.remove()
        subscription.remove()
        _import_module.cache_clear()
        reset(new, "dynx.check")
        for versions in new.values():
            for version in versions:
                _remove_names_of(version)
        for scope, names in scopes.values():
            for name in _names_of_dynamo(scope) - names:
                scope.pop(name, None)
        counters.clear()
        counters.update(before)


def _remove_names_of(compiled: CodeType) -> None:
    """Remove the names, such as those of resume functions, that Dynamo added to globals for code that is no longer used.

    Torch removes the names when `compiled` is freed, but once `compiled` has run, torch does not free it until Python exits.
    """
    from torch._dynamo.utils import CleanupManager

    manager = CleanupManager.instance
    if id(compiled) in manager.values:
        manager._remove_id(id(compiled))


def _names_of_dynamo(scope: dict[str, Any]) -> set[str]:
    return {name for name in tuple(scope) if isinstance(name, str) and name.startswith(_OF_DYNAMO)}
