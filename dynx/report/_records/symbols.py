"""Show the report of `dynx.symbols`, the symbols of symbolic shapes, as a block (title, table, notes)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dynx.advice import spoken
from dynx.records.symbols import Symbol, SymbolReport
from dynx.report import _words as words
from dynx.report._records.block import Block


def of_symbols(report: SymbolReport) -> Iterator[Block]:
    rows = [
        (symbol.alias, " = ".join(map(_size, symbol.sources)), symbol.hint or "", _range(symbol), "; ".join(_remarks(symbol)))
        for symbol in report.symbols
    ]
    title = words.plural(len(report.symbols), "symbol")
    yield Block(title, f"named by {report.scheme}", ("symbol", "value", "#in this call", "range", ""), rows)


def _size(source: str) -> str:
    return re.sub(r"\.(size|stride)\(\)\[(\d+)\]$", r".\1(\2)", spoken(source))


def _range(symbol: Symbol) -> str:
    low, high = (bound.removeprefix("-").replace("int_oo", "any") for bound in (symbol.low, symbol.high))
    return symbol.low if symbol.low == symbol.high else f"{low} to {high}" if low != high else "any"


def _remarks(symbol: Symbol) -> Iterator[str]:
    if symbol.value is not None:
        where = f" by {words.line(symbol.location)}" if symbol.location is not None else ""
        yield f"replaced by {symbol.value}{where}"
    if symbol.collided:
        yield "collided: the name depends on the order of creation"
