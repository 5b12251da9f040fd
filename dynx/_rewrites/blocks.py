"""Move a statement into a block: an `if`, so that it runs only in eager code, or a `with`, so that a call runs eagerly."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from dynx._rewrites.source import Source, calls_at
from dynx.advice.facts.fixes import STANCE
from dynx.records.fix import Fix


def eager_only(source: Source, line: int) -> Iterator[str]:
    """Yield the new text of a file, with the call at a line moved under `if not torch.compiler.is_compiling():`."""
    for found in source.at_line(cst.SimpleStatementLine, line):
        if len(found.body) == 1 and isinstance(found.body[0], cst.Expr) and isinstance(found.body[0].value, cst.Call):
            block = cst.IndentedBlock([found.with_changes(leading_lines=())])
            test = cst.parse_expression("not torch.compiler.is_compiling()")
            yield source.replaced(found, cst.If(test, block, leading_lines=found.leading_lines))
        break


def first_call(source: Source, fix: Fix) -> Iterator[str]:
    """Yield the text of a file with the call in `fix` under `with torch.compiler.set_stance("eager_then_compile"):`."""
    for call in calls_at(source, fix):
        found = source.statement_of(call)
        if not isinstance(found, cst.SimpleStatementLine) or _leaves(found):
            continue
        block = cst.IndentedBlock([found.with_changes(leading_lines=())])
        context = cst.WithItem(cst.parse_expression(STANCE))
        yield source.replaced(found, cst.With([context], block, leading_lines=found.leading_lines))


def _leaves(node: cst.CSTNode) -> bool:
    """Return whether a statement has `yield` or `await`: while it is suspended, the stance would apply to other code."""
    return isinstance(node, (cst.Yield, cst.Await)) or any(map(_leaves, node.children))
