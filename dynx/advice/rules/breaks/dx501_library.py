"""Rule DX501: the code of a library breaks the graph."""

from __future__ import annotations

from dynx.advice.facts import libraries
from dynx.advice.facts.breaks import code_of, is_print, name_of
from dynx.advice.facts.fixes import setting
from dynx.advice.rule import Advice, BreakRule, PlaceRule, one_of
from dynx.records.graph_break import GraphBreak

_OF_DATA = ("DX202", "DX203", "DX209")  # the library needs a value, which an option may avoid


def _title(graph_break: GraphBreak) -> str:
    code = f": {graph_break.code_of_library}" if graph_break.code_of_library else code_of(graph_break)
    return f"{graph_break.location.library} breaks the graph: {name_of(graph_break)}{code}"


def _advice(graph_break: GraphBreak, reason: BreakRule | None) -> Advice:
    library = graph_break.location.library
    if graph_break.callee in ("print", "builtins.print"):
        return one_of(setting("reorderable_logging_functions.add(print)", "{}: the text is printed after the graph"))
    if is_print(graph_break):
        return one_of("change what it warns of", "add the logger's method to torch._dynamo.config.ignore_logging_functions")
    known = libraries.advice_on_break(graph_break)
    if known is not None:
        return known
    if reason is not None and reason.id in _OF_DATA:
        return one_of(f"look for an option of {library} that avoids it, or compile only the part before and after this call")
    return one_of(f"call it outside the compiled function, or report it to {library}")


RULE = PlaceRule(
    id="DX501",
    title="a library breaks the graph",
    priority=4,  # users cannot change a line of a library, whatever breaks the graph there
    applies=lambda graph_break: graph_break.location.library is not None,
    title_of=_title,
    advice=_advice,
)
