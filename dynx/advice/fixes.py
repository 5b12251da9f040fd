"""The changes that `dynx fix` can try for recompiles: settings of torch, arguments of torch.compile, marks and rewrites.

A fix need not fit: it is tried before it is advised. The first that a rule returns changes least.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dynx.advice.names import ITEM, SIZE, is_array, spoken
from dynx.advice.rule import Cause
from dynx.advice.sizes import is_size_one
from dynx.records.compile import GaveUp
from dynx.records.fix import Fix, Mark, rewrite
from dynx.records.location import Location

_CONFIG = "torch._dynamo.config"
_STANCE = 'torch.compiler.set_stance("eager_then_compile")'
_LOCAL = re.compile(r"^L\['\w+'\]|^\w+(?=$|[.\[])")


def of_causes(causes: Sequence[Cause]) -> tuple[Fix, ...]:
    """Return the fixes to try for recompiles that are one change of the program."""
    fixes = [fix for cause in causes for fix in (_RECOMPILES[cause.rule.id](cause) if cause.rule.id in _RECOMPILES else ())]
    return tuple(sorted(dict.fromkeys(fixes), key=_breadth))


def _breadth(fix: Fix) -> int:
    """Return a sort key: what changes less of the program comes first."""
    return ("mark", "statement", "option", "stance", "rewrite").index(fix.kind)


def of_limit(gave_up: GaveUp, causes: Sequence[Cause], advice: str) -> tuple[Fix, ...]:
    """Return the fixes to try for a function that reached a recompile limit: those of the recompiles, then a higher limit.

    A limit is raised only if the advice names it: that of values which never end would be reached again in a longer run.
    """
    fixes = of_causes(causes)
    if "recompile_limit" not in advice:
        return fixes
    allowed = gave_up.allowed or max((len(cause.recompiles) for cause in causes), default=8)
    return (*fixes, Fix("statement", f"{_CONFIG}.{gave_up.limit} = {4 * allowed}"))


def _changed_size(cause: Cause) -> Iterator[Fix]:
    reason = cause.first
    match = SIZE.match(reason.source)
    if is_size_one(reason):
        return  # compiles on its own, whatever is marked
    if "duck sizing" in reason.text:
        yield Fix("statement", "torch.fx.experimental._config.use_duck_shape = False")
    if match is not None and ("_parameters[" in match["tensor"] or "parameter" in reason.text):
        yield Fix("statement", f"{_CONFIG}.force_parameter_static_shapes = False")
    elif match is not None and _LOCAL.match(match["tensor"]) and not is_array(reason.source) and cause.after is None:
        marks = (Mark(match["tensor"], int(match["dim"])), *cause.together)
        more = tuple(dict.fromkeys((*marks, *cause.varying)))
        if len(more) == 1:
            yield from _marks(mark_text(marks[0]), cause, marks, may_fail=True)
        others = f" and {len(more) - 1} more" if len(more) > 1 else ""
        yield from _marks(f"maybe_{mark_text(more[0])}{others}", cause, more, may_fail=False)
    yield Fix("option", "dynamic=True")
    yield from _first_call(cause)
    yield from _isolated(cause)


def _marks(text: str, cause: Cause, marks: tuple[Mark, ...], *, may_fail: bool) -> Iterator[Fix]:
    """Yield the fix for the line of the first call, which is compiled first, then for that of the recompile."""
    lines = dict.fromkeys(filter(None, map(_in_user_code, (cause.first_call, cause.called_from))))
    for line in lines or (None,):
        yield Fix("mark", text, cause.recompiles[0].location, line, marks, may_fail)


def _in_user_code(call: Location | None) -> Location | None:
    """Return the line of a call; None if a library calls the function, with arguments of its own."""
    return call if call is not None and call.library is None else None


def mark_text(mark: Mark) -> str:
    """Return a mark as the user writes it: `mark_dynamic(x, 1)`."""
    return f"mark_dynamic({spoken(mark.source)}, {mark.dim})"


def _first_call(cause: Cause) -> Iterator[Fix]:
    """Yield fixes by which first calls run eagerly: those of all functions, or those in one line of the user's file."""
    if len(cause.recompiles) != 1:  # more than the first call differs
        return
    yield Fix("stance", _STANCE)
    if (line := _in_user_code(cause.first_call)) is not None:
        yield rewrite("first call", cause.recompiles[0].location, line)


def _module_int(cause: Cause) -> Iterator[Fix]:
    yield Fix("statement", f"{_CONFIG}.allow_unspec_int_on_nn_module = True")
    yield from _value(cause)


def _value(cause: Cause) -> Iterator[Fix]:
    yield from _first_call(cause)
    if re.match(r"-?\d", cause.first.expected or ""):
        yield Fix("option", "dynamic=True")
        if cause.first.holder == "argument" and re.fullmatch(r"L\['\w+'\]|\w+", cause.first.source):
            called = _in_user_code(cause.called_from)
            yield rewrite("tensor argument", cause.recompiles[0].location, called, (Mark(cause.first.source, 0),))
    if cause.fixed is not None and cause.fixed.location is not None and spoken(cause.first.source).endswith(ITEM):
        yield rewrite("index", cause.fixed.location.own)
    yield from _attribute(cause)
    yield from _isolated(cause)


def _instances(cause: Cause) -> Iterator[Fix]:
    yield from _isolated(cause)
    yield from _attribute(cause)


def _attribute(cause: Cause) -> Iterator[Fix]:
    """Yield the fix for a number that an object of the program holds."""
    name = spoken(cause.first.source)
    library = cause.first.location.library if cause.first.location is not None else None
    if "." in name and re.fullmatch(r"[\w.\[\]]+\.\w+", name) and re.match(r"-?\d", cause.first.expected or "") and not library:
        yield rewrite("tensor attribute", attribute=name)


def _isolated(cause: Cause) -> Iterator[Fix]:
    if cause.first.other_instance is not None:
        yield Fix("option", "isolate_recompiles=True")


def _backend(cause: Cause) -> Iterator[Fix]:
    yield Fix("option", "dynx.compile")


_RECOMPILES = {
    "DX101": _module_int,
    "DX102": _changed_size,
    "DX103": _value,
    "DX104": _first_call,
    "DX105": _first_call,
    "DX110": _first_call,
    "DX112": _backend,
    "DX114": _value,
    "DX115": _instances,
    "DX119": _first_call,
    "DX120": _first_call,
    "DX121": _first_call,
}
