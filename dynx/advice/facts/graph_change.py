"""Compare the code of a graph in two runs, line by line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from typing import NamedTuple

from dynx.records.location import CodeLine, Location

_WORD = re.compile(r"\w+")
_LITERAL = re.compile(r"\b([su]?\d+|torch\.b?float\w+|True|False)\b")  # also names of symbols
_DELETION = re.compile(r";  [\w, =]+ = None$")  # at the last use of a value
_CALL = re.compile(r"\s*(?P<name>\w+) = (?P<function>[\w.]+)\(.*")
_ASSERT = re.compile(r"_assert_scalar|_check\(|sym_constrain_range|_assert_async")


class GraphChange(NamedTuple):
    """The first difference between the code of a graph in two runs, with the differing lines of both."""

    name: str  # "line 11, and 6 more changes"
    before: str
    after: str
    location: Location | None
    is_assertion: bool  # whether the graphs differ in runtime assertions


def graph_change(
    before: Sequence[CodeLine], after: Sequence[CodeLine], *, has_other_names: bool, ignore_literals: bool
) -> GraphChange | None:
    """Return the first change between two graphs; None if there is none.

    A change of the signature counts only if nothing else differs: the signature only lists the inputs.

    Args:
        has_other_names: Whether symbols had other names in `after`, and the caller replaced them by those of `before`. If so, a
            different order of the terms in an expression is no change: sympy orders terms by name.
        ignore_literals: Whether to ignore numbers, dtypes and flags because they follow from a difference that is already
            known: the sizes in a call of `view`, or the dtype under autocast.
    """
    if _without_signature(before) != _without_signature(after):
        before, after = _without_signature(before), _without_signature(after)
    first, second = _lines(before), _lines(after)
    if first == second or (has_other_names and _words(first) == _words(second)):
        return None  # sympy orders terms by the names of symbols
    if ignore_literals and _without_literals(first) == _without_literals(second):
        return None
    changes = [change for change in SequenceMatcher(None, first, second, autojunk=False).get_opcodes() if change[0] != "equal"]
    is_assertion = _assertions(first) != _assertions(second)
    if is_assertion:
        changes = [one for one in changes if _assertions((*first[one[1] : one[2]], *second[one[3] : one[4]]))][:1] or changes
    _, start, end, other_start, other_end = changes[0]
    lines = (*after[other_start:other_end], *before[start:end])
    location = next((line.location for line in lines if line.location is not None), None)
    others = len(changes) - 1
    more = f", and {others} more change{'s' if others > 1 else ''}" if others else ""
    name = "assertion on a size" if is_assertion else f"line {other_start + 1}{more}"
    return GraphChange(name, _joined(first[start:end]), _joined(second[other_start:other_end]), location, is_assertion)


def flag_changed(before: Sequence[CodeLine], after: Sequence[CodeLine]) -> bool:
    """Return whether some call has different flags (True or False) among its arguments in the two graphs."""
    calls = [{match["name"]: match for line in graph if (match := _CALL.match(line.text))} for graph in (before, after)]
    for name, call in calls[0].items():
        other = calls[1].get(name)
        if other is not None and call["function"] == other["function"] and _flags(call[0]) != _flags(other[0]):
            return True
    return False


def _flags(call: str) -> list[str]:
    return re.findall(r"\b(?:True|False)\b", call)


def lines_apart(first: Sequence[CodeLine], second: Sequence[CodeLine]) -> int:
    """Return the number of lines that are in only one of two graphs, ignoring literals and names of symbols."""
    before, after = (Counter(_without_literals(_lines(graph))) for graph in (first, second))
    return ((before - after) + (after - before)).total()


def _lines(graph: Sequence[CodeLine]) -> list[str]:
    return [_DELETION.sub("", line.text) for line in graph]


def _joined(lines: Iterable[str]) -> str:
    return "\n".join(map(str.strip, lines)) or "none"


def _without_signature(graph: Sequence[CodeLine]) -> list[CodeLine]:
    """Return the graph with an empty line in place of its signature, so that line numbers stay the same."""
    return [replace(line, text="") if line.text.startswith("def forward(") else line for line in graph]


def _assertions(lines: Iterable[str]) -> int:
    return sum(_ASSERT.search(line) is not None for line in lines)


def _words(lines: Iterable[str]) -> Counter[str]:
    return Counter(word for line in lines for word in _WORD.findall(line))


def _without_literals(lines: Iterable[str]) -> list[str]:
    return [_LITERAL.sub("0", line) for line in lines]
