"""Move a statement into an `if` block, so that it runs only in eager code."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from dynx._rewrites.source import Source


def eager_only(source: Source, line: int) -> Iterator[str]:
    """Yield the new text of a file, with the call at a line moved under `if not torch.compiler.is_compiling():`."""
    for found in source.at_line(cst.SimpleStatementLine, line):
        if len(found.body) == 1 and isinstance(found.body[0], cst.Expr) and isinstance(found.body[0].value, cst.Call):
            block = cst.IndentedBlock([found.with_changes(leading_lines=())])
            test = cst.parse_expression("not torch.compiler.is_compiling()")
            yield source.replaced(found, cst.If(test, block, leading_lines=found.leading_lines))
        break
