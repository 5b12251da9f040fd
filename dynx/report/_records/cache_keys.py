"""Show the result of `pgo.cachediff` as blocks (title, table, notes): why graphs were not found in the caches on disk."""

from __future__ import annotations

from collections.abc import Iterator

from dynx.records.cache_key import CacheCause, CacheDiff
from dynx.report import _words as words
from dynx.report._records.block import Block


def of_causes(diff: CacheDiff) -> Iterator[Block]:
    """Yield a block with the number of cache keys that differ, then a block for each cause."""
    if diff.problem is not None:
        first, *rest = diff.problem.splitlines()
        yield Block(first, notes=tuple(map(str.strip, rest)))
        return
    yield Block(_title(diff), _remark_on_keys(diff))
    for cause in diff:
        yield Block(f"{cause.kind}: {cause.component}", _remark(cause), notes=(*_values(cause), f"→ {cause.advice}"))


def _title(diff: CacheDiff) -> str:
    total = diff.same + diff.different + diff.elsewhere
    if not total:
        return "no graph has a key"
    if not diff:
        return "every graph was found" if diff.elsewhere else "all keys are the same"
    return f"{diff.different} of {words.plural(total, 'key')} {'differs' if diff.different == 1 else 'differ'}"


def _remark_on_keys(diff: CacheDiff) -> str:
    if diff:
        return words.plural(len(diff.causes), "cause")
    if diff.elsewhere:
        return f"{diff.elsewhere} under {'a key' if diff.elsewhere == 1 else 'keys'} that the first run does not have"
    return "no graph missed the caches"


def _values(cause: CacheCause) -> Iterator[str]:
    if cause.kind == "bypass" and cause.before == cause.after:
        yield cause.before
    elif cause.kind in ("graph", "runtime assert"):
        yield from (f"- {line}" for line in cause.before.splitlines())
        yield from (f"+ {line}" for line in cause.after.splitlines())
    else:
        yield f"{cause.before} in the first run, {cause.after} in the second"


def _remark(cause: CacheCause) -> str:
    facts = (words.line(cause.location), words.plural(cause.count, "graph") if cause.count > 1 else "", cause.rule or "")
    return ", ".join(filter(None, facts))
