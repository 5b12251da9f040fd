"""Restore the counters, tables and names of torch's compiler after a trace that the program did not ask for.

Torch: what a trace changes, found by comparing everything that is reachable from torch's modules before and after a trace, in
2.11, 2.13 and 2.15. Not restored: caches of pure functions, whose only effect is that a later trace is faster.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from typing import Any

from dynx._torch.hooks import owner_of

# numbers: the attribute gets the value back that it had
_COUNTERS = (
    "torch._dynamo.utils:op_count",
    "torch._dynamo.utils:CleanupManager.count",
    "torch._subclasses.meta_utils:DESCRIBER_NEXT_ID",
    "torch._subclasses.fake_tensor:FakeTensorMode.cache_hits",
    "torch._subclasses.fake_tensor:FakeTensorMode.cache_misses",
    "torch.fx.graph_module:_loader.next_id",
)
# tables and lists: the object stays, and gets the items back that it had
_TABLES = (
    "torch._dynamo.utils:counters",
    "torch._dynamo.utils:compilation_time_metrics",
    "torch._dynamo.utils:cumulative_time_spent_ns",
    "torch._dynamo.utils:_compilation_metrics",
    "torch._dynamo.utils:graph_break_reasons",
    "torch._dynamo.utils:_cleanup_owners",
    "torch._dynamo.utils:graph_break_dup_warning_checker.set",
    "torch._dynamo.utils:warn_once_cache",
    "torch._subclasses.fake_tensor:FakeTensorMode.cache_bypasses",
    "torch.fx.graph_module:_loader.eval_cache",
    "torch.utils._stats:simple_call_counter",
)


@contextmanager
def unchanged_state() -> Iterator[None]:
    """Restore torch's counters and tables, at the end of this context, to the values that they had at its beginning.

    The lock of Dynamo's compilations must be held, as no other compilation may change them meanwhile.
    """
    with ExitStack() as stack:
        for path in _COUNTERS:
            if (found := _found(path)) is not None:
                stack.callback(setattr, *found)
        for path in _TABLES:
            if (found := _found(path)) is not None:
                stack.callback(_refill, found[2], _contents(found[2]))
        yield


def _found(path: str) -> tuple[Any, str, Any] | None:
    """Return the owner, name and value of an attribute; None if this torch does not have it."""
    try:
        owner, name = owner_of(path)
        return owner, name, getattr(owner, name)
    except (ImportError, AttributeError):
        return None


def _contents(table: Any) -> Any:
    """Return the items of a table; its values are copied if they are lists or tables themselves."""
    if not isinstance(table, MutableMapping):
        return tuple(table)
    return {key: copy.copy(value) if isinstance(value, (list, dict)) else value for key, value in table.items()}


def _refill(table: Any, contents: Any) -> None:
    if isinstance(table, MutableMapping):
        for key in [key for key in table if key not in contents]:
            del table[key]
        for key, value in contents.items():
            if key in table and isinstance(value, (list, dict)):
                _refill(table[key], value)
            else:
                table[key] = value
    else:
        table.clear()
        (table.update if isinstance(table, set) else table.extend)(contents)
