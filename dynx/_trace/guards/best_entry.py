"""Find the cache entry that fits a call best: its failed guards are the cause of a recompile, rather than those of others.

Torch reports one failed guard for each entry, and evaluates no further one. An entry that was compiled for something else, such
as an empty batch, fails too, but not because of what is new in this call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import CodeType
from typing import Any

from dynx._bytecode.safe_read import UNKNOWN, resolve_once
from dynx._torch.cache.entries import entries_of
from dynx._torch.cache.guard_tree import leaf_holds, tree_of
from dynx.records import Reason

_MOST_NODES = 2000  # of all entries: of a large model with many entries, reading all takes longer than it is worth


def best_first(
    code: CodeType, reasons: Sequence[Reason], locals: Mapping[str, Any], globals: Mapping[str, Any]
) -> tuple[Reason, ...]:
    """Return failed guards, those of the entry that fits a call best first: with the fewest failed guards, then most that hold.

    Entries that were compiled for the same instance of a class come first. If all entries fail because of the same value, or if
    they have very many guards, the order is unchanged otherwise.
    """
    reasons = sorted(reasons, key=lambda reason: reason.other_instance is not None)
    if len({(reason.kind, reason.source) for reason in reasons}) < 2:
        return tuple(reasons)
    entries = {entry.compile_id: entry.guards for entry in entries_of(code)}
    nodes = {compile_id: list(tree_of(guards).walk()) for compile_id, guards in entries.items()}
    if sum(map(len, nodes.values())) > _MOST_NODES:
        return tuple(reasons)
    known: dict[str, Any] = {}
    fits: dict[str | None, tuple[int, int]] = {}
    for compile_id, guards in entries.items():
        of_sizes = [leaf_holds(leaf, locals) for leaf in guards.root.get_epilogue_lambda_guards()]
        failed, held = of_sizes.count(False), of_sizes.count(True)
        for node in nodes[compile_id]:
            value = resolve_once(node.source, locals, globals, known) if node.source else UNKNOWN
            if value is UNKNOWN:
                continue
            holds = [leaf_holds(leaf, value) for leaf in node.manager.get_leaf_guards()]
            failed, held = failed + (not all(holds)), held + sum(holds)
        fits[compile_id] = failed, -held
    return tuple(sorted(reasons, key=lambda reason: (reason.other_instance is not None, fits.get(reason.against, (0, 0)))))
