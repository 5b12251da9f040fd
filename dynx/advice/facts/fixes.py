"""Fixes that several advice rules propose to `dynx fix`: edits of the program that may remove a problem.

A fix is a setting of torch, an option (an argument of torch.compile), a mark (a call of `mark_dynamic` on a tensor) or a
rewrite of a source line. It may not work, so `dynx fix` first runs the program with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dynx.advice.facts.line_uses import is_looked_up
from dynx.advice.facts.names import IN_CONTAINER_OF_OBJECT, ITEM, SIZE, is_array, spoken
from dynx.advice.rule import Cause
from dynx.records.compile import GaveUp
from dynx.records.finding import Alternative
from dynx.records.fix import Fix, FixKind, Mark, rewrite
from dynx.records.graph_break import GraphBreak
from dynx.records.location import Location

CONFIG = "torch._dynamo.config"
_LOCAL = re.compile(r"^L\['\w+'\]|^\w+(?=$|[.\[])")
_MANY = 3  # marks that are written as a loop
_BREADTH: tuple[FixKind, ...] = ("mark", "statement", "option", "rewrite")  # the smallest change first


def setting(assignment: str, text: str = "{}") -> Alternative:
    """Return the alternative to change a setting of Dynamo: `allow_rnn = True`; `text` says more, with `{}` for the code."""
    code = f"{CONFIG}.{assignment}"
    return Alternative(text.format(code), Fix("statement", code).name)


def option(code: str, text: str = "compile with {}") -> Alternative:
    """Return the alternative to pass an argument such as `dynamic=True` to torch.compile; `text` has `{}` for the argument."""
    return Alternative(text.format(code), Fix("option", code).name)


def marked(own: Mark, others: Sequence[Mark], text: str, *, may_fail: bool) -> Alternative:
    """Return the alternative to mark a size and others as dynamic; `text` says when, with `{}` for the calls."""
    code = _marks_text((own, *others), may_fail=may_fail)
    return Alternative(text.format(code), Fix("mark", code, may_fail=may_fail).name)


def _marks_text(marks: Sequence[Mark], *, may_fail: bool) -> str:
    """Return marks as the user writes them: one call for each, or a loop for three or more of the same dim."""
    maybe = "" if may_fail else "maybe_"
    if len(marks) >= _MANY and len({mark.dim for mark in marks}) == 1:
        return f"for t in [{', '.join(spoken(mark.source) for mark in marks)}]: {maybe}mark_dynamic(t, {marks[0].dim})"
    first, *more = (f"{maybe}{mark_text(mark)}" for mark in marks)
    return f"{first}{' with ' if more else ''}{' and '.join(more)}"


NOT_STATIC = Alternative("drop dynamic=False from torch.compile", "dynamic=None")


def not_static(cause: Cause) -> Iterator[Fix]:
    """Yield the fix that drops `dynamic=False`, if that is why each value is compiled on its own."""
    if cause.is_static:
        yield Fix("option", NOT_STATIC.does)


def as_tensor(source: str, text: str = "") -> Alternative:
    """Return the alternative to pass an argument as a tensor; `text` says more."""
    return Alternative(f"pass {source} as a tensor{text}", rewrite("tensor argument").name)


def limit(name: str, allowed: int) -> Alternative:
    """Return the alternative to raise a recompile limit of which `allowed` compilations were too few."""
    code = f"{CONFIG}.{name}"
    return Alternative(f"raise {code} from {allowed} to the number of values, if it is known", Fix("statement", code).name)


def of_causes(causes: Sequence[Cause]) -> tuple[Fix, ...]:
    """Return the fixes to try for recompiles that have these causes, without duplicates, the smallest edit first."""
    fixes = dict.fromkeys(fix for cause in causes for fix in cause.rule.fixes(cause))
    return tuple(sorted(fixes, key=lambda fix: _BREADTH.index(fix.kind)))


def of_limit(gave_up: GaveUp, causes: Sequence[Cause], *, is_raised: bool) -> tuple[Fix, ...]:
    """Return the fixes to try for a function that reached a recompile limit: those for its recompiles, then a higher limit.

    `is_raised` says whether to add the higher limit, which does not help if the number of values is unbounded.
    """
    fixes = of_causes(causes)
    if not is_raised:
        return fixes
    allowed = gave_up.allowed or max((len(cause.recompiles) for cause in causes), default=8)
    return (*fixes, Fix("statement", f"{CONFIG}.{gave_up.limit} = {4 * allowed}"))


def mark_of(cause: Cause) -> Mark | None:
    """Return the tensor and dim of the changed size, to be marked as dynamic; None if the caller does not pass this tensor."""
    match = SIZE.match(cause.first.source)
    if match is None or not _LOCAL.match(match["tensor"]) or is_array(cause.first.source) or cause.after is not None:
        return None
    if cause.is_captured:  # torch calls the hook
        return None
    if IN_CONTAINER_OF_OBJECT.search(match["tensor"]):
        return None
    return Mark(match["tensor"], int(match["dim"]))


def marks(cause: Cause, own: Mark) -> Iterator[Fix]:
    """Yield fixes that mark the changed size (`own`) and the other changing sizes of the function as dynamic.

    `mark_dynamic` raises where a line fixes the size, also in another part of the function, in a captured backward pass, or if
    another size depends on it.
    """
    together = (own, *cause.together)
    more = tuple(dict.fromkeys((*together, *cause.varying)))
    if len(more) == 1 and not cause.is_used_elsewhere:
        yield from _marks(cause, together, may_fail=True)
    yield from _marks(cause, more, may_fail=False)


def _marks(cause: Cause, marks: tuple[Mark, ...], *, may_fail: bool) -> Iterator[Fix]:
    """Yield a fix with `marks` before the first call of the function, then one with `marks` before the call that recompiled."""
    lines = dict.fromkeys(filter(None, map(_in_user_code, (cause.first_call, cause.called_from))))
    for line in lines or (None,):
        yield Fix("mark", _marks_text(marks, may_fail=may_fail), cause.recompiles[0].location, line, marks, may_fail)


def mark_text(mark: Mark) -> str:
    """Return a mark as the user writes it: `mark_dynamic(x, 1)`."""
    return f"mark_dynamic({spoken(mark.source)}, {mark.dim})"


def _in_user_code(call: Location | None) -> Location | None:
    """Return the location of a call if it is in the user's code, where the arguments can be marked; else None."""
    return call if call is not None and call.library is None else None


def of_value(cause: Cause) -> Iterator[Fix]:
    """Yield the fixes to try for a Python value that changes and is guarded."""
    if re.match(r"-?\d", cause.first.expected or ""):
        yield from not_static(cause)
        yield Fix("option", "dynamic=True")
        is_key = cause.fixed is not None and is_looked_up(cause.fixed.code, spoken(cause.first.source))  # tensors are no keys
        if not is_key and cause.first.holder == "argument" and re.fullmatch(r"L\['\w+'\]|\w+", cause.first.source):
            called = _in_user_code(cause.called_from)
            yield rewrite("tensor argument", cause.recompiles[0].location, called, (Mark(cause.first.source, 0),))
    if cause.fixed is not None and cause.fixed.location is not None and spoken(cause.first.source).endswith(ITEM):
        yield rewrite("index", cause.fixed.location.own)
    yield from tensor_attribute(cause)
    yield from isolated(cause)


def tensor_attribute(cause: Cause) -> Iterator[Fix]:
    """Yield the fix that stores a changing number in its attribute as a tensor; nothing if no attribute holds it."""
    name = spoken(cause.first.source)
    library = cause.first.location.library if cause.first.location is not None else None
    if "." in name and re.fullmatch(r"[\w.\[\]]+\.\w+", name) and re.match(r"-?\d", cause.first.expected or "") and not library:
        yield rewrite("tensor attribute", attribute=name)


def isolated(cause: Cause) -> Iterator[Fix]:
    """Yield the fix `isolate_recompiles=True` if instances of a class differ, and a limit is reached.

    Each instance is compiled with it too, as a first compilation instead of a recompile.
    """
    if cause.first.other_instance is not None and cause.allowed is not None:
        yield Fix("option", "isolate_recompiles=True")


def branch(graph_break: GraphBreak) -> Iterator[Fix]:
    """Yield the rewrites of an `if` on the value of a tensor: to `torch.where`, and to `torch._assert_async`."""
    yield rewrite("where", graph_break.location.own)
    yield rewrite("assert", graph_break.location.own)
