"""Choose which sizes and numbers are dynamic in each trace of a function, overriding what torch has learned so far.

Torch: `OutputGraph.root_tx` and `local_scope`; `pgo.update_automatic_dynamic(tx, name, entry)`, which returns what torch has
learned about one source: `VariableBuilder` then decides whether its sizes are dynamic.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from weakref import ref

from dynx._torch.capabilities import hook_point, require
from dynx._torch.hooks import Wrapping, wrap
from dynx._torch.shapes.known_sizes import CodeKey, key_of
from dynx.records.profile import Graph, GraphSize


class Traced(NamedTuple):
    """The function that is about to be traced, and its variables."""

    key: CodeKey
    locals: Mapping[str, Any]
    globals: Mapping[str, Any]


_Sizes = Mapping[str, list[GraphSize]]  # by source


def choose_sizes(choose: Callable[[Traced], Graph | None]) -> Wrapping:
    """Let `choose(traced)` decide, for each trace, which sizes are dynamic, until the handle is removed.

    If `choose` returns None, torch decides. What torch itself records about sizes does not change. `mark_dynamic` and
    `mark_static` in the program take precedence, as they do in torch. With compiler collectives, where torch makes all ranks
    choose the same sizes, `choose` is not called.
    """
    require("dynamic_update", "profile_entry", "profile_dynamic")

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        last: tuple[Callable[[], Any], _Sizes] = (lambda: None, {})  # a weak reference to the last trace, and its sizes

        def update_automatic_dynamic(tx: Any, name: str, entry: Any, **keywords: Any) -> Any:
            nonlocal last
            known = original(tx, name, entry, **keywords)
            if known is entry or tx.distributed_state is not None:  # automatic_dynamic_shapes is off, or collectives are on
                return known
            trace, sizes = last
            if trace() is not tx.output:
                root = tx.output.root_tx
                sizes = _by_source(choose(Traced(key_of(root), tx.output.local_scope, root.f_globals)))
                last = ref(tx.output), sizes
            return _with_sizes(known, entry, sizes[name]) if name in sizes else known

        return update_automatic_dynamic

    return wrap(hook_point("dynamic_update"), make)


def _by_source(graph: Graph | None) -> _Sizes:
    sizes: dict[str, list[GraphSize]] = {}
    for size in graph or ():
        sizes.setdefault(size.source, []).append(size)
    return sizes


def _with_sizes(known: Any, entry: Any, sizes: list[GraphSize]) -> Any:
    """Return a copy of torch's record `known` with these `sizes`; `known` itself if they do not admit the values in `entry`."""
    from torch._dynamo import pgo

    chosen = copy.copy(known)
    if sizes[0].dim is None:
        if isinstance(entry.size, tuple) or not sizes[0].admits(entry.scalar):
            return known
        chosen.scalar = pgo.auto_dynamic if sizes[0].marked else entry.scalar
        return chosen
    if not isinstance(entry.size, tuple) or not all(_admits(size, entry.size) for size in sizes):
        return known
    own = known.size if isinstance(known.size, tuple) else (known.size,) * len(entry.size)
    by_dim = {size.dim: size for size in sizes}
    chosen.size = tuple(
        before if dim not in by_dim else pgo.auto_dynamic if by_dim[dim].marked else now
        for dim, (before, now) in enumerate(zip(own, entry.size, strict=True))
    )
    if all(type(size) is int for size in chosen.size) and chosen.size != known.size:
        chosen.stride = entry.stride  # torch makes strides dynamic only if all sizes are static
    return chosen


def _admits(size: GraphSize, now: tuple[Any, ...]) -> bool:
    return size.dim is not None and size.dim < len(now) and type(now[size.dim]) is int and size.admits(now[size.dim])
