"""Run the first call of a compiled function eagerly: move its statement into `with torch.compiler.set_stance(...)`."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from dynx.fix._rewrites.source import Source, calls_at
from dynx.records.fix import Fix

_STANCE = 'torch.compiler.set_stance("eager_then_compile")'


def eagerly(source: Source, fix: Fix) -> Iterator[str]:
    """Yield the new text of a file, with the statement that calls a function moved into a `with` that sets the stance."""
    for call in calls_at(source, fix):
        found = source.statement_of(call)
        if not isinstance(found, cst.SimpleStatementLine) or _leaves(found):
            continue
        inside = cst.IndentedBlock([found.with_changes(leading_lines=())])
        context = cst.WithItem(cst.parse_expression(_STANCE))
        yield source.replaced(found, cst.With([context], inside, leading_lines=found.leading_lines))


def _leaves(node: cst.CSTNode) -> bool:
    """Return whether a statement has `yield` or `await`: the stance would also apply to other code that runs meanwhile."""
    return isinstance(node, (cst.Yield, cst.Await)) or any(map(_leaves, node.children))
