"""Records of the symbols in a graph with dynamic shapes."""

from __future__ import annotations

from dataclasses import dataclass

from dynx.records.location import Location
from dynx.records.record import Record
from dynx.records.shown import Shown


@dataclass(frozen=True, slots=True)
class Symbol(Record):
    """A symbolic size, stride or number: its name, where its value comes from, its range, and what torch replaced it by."""

    name: str  # "s77"
    alias: str  # the name that dynx displays: torch's name, or if that is long its letter and the order of creation, "s0"
    sources: tuple[str, ...]  # "L['x'].size()[0]"; several if torch gave equal sizes one symbol
    hint: str | None  # its value in the call that was traced
    low: str  # the range that the graph is valid for
    high: str
    collided: bool  # another source has the same number, so that the name depends on the order of creation
    value: str | None = None  # its replacement: a number, "4", or an expression of other symbols
    location: Location | None = None  # the line that fixed it to one value


@dataclass(frozen=True, slots=True)
class SymbolReport(Shown):
    """The result of `symbols.report`: the symbols of one traced graph, in the order in which torch created them."""

    scheme: str  # the scheme for names that is installed: "torch", "blake63"
    symbols: tuple[Symbol, ...]
