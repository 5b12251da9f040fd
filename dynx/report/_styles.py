"""What notebook pages share: templates, tables whose text is left-aligned, code without boxes, and bars behind amounts."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from jinja2 import Environment, Template
from markupsafe import Markup

from dynx.report._wrap import ordinary


@cache
def template(page: str) -> Template:
    """Return the template of a page; all text of the program is escaped."""
    return Environment(autoescape=True, finalize=_as_written).from_string(page)


def _as_written(value: Any) -> Any:
    return ordinary(value) if isinstance(value, str) else value


def of_tables(name: str) -> Markup:
    """Return styles of tables in elements of a class; columns of class `n` hold numbers.

    JupyterLab and VS Code align all cells to the right, with selectors that are more specific than one class.
    """
    own = f".{name}.{name}.{name}"
    return Markup(f"""
{own} table {{ border-collapse: collapse; color: inherit; background: none; table-layout: auto; margin: .2em 0 .8em }}
{own} tr {{ background: none; text-align: left }}
{own} td, {own} th {{ vertical-align: top; text-align: left; border: 0; border-bottom: 1px solid #8883; background: none }}
{own} th {{ font-weight: 400; opacity: .65 }}
{own} td.n, {own} th.n {{ text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums }}
{own} code, {own} pre {{ background: none; color: inherit; padding: 0; border: 0 }}
{own} .bar {{ background: linear-gradient(to left, #5b8def55 var(--share), transparent 0) no-repeat }}
""")  # without text of the program


def bar(share: float) -> str:
    """Return the style attribute of an element of class `bar`, filled from its right end by a share from 0 to 1."""
    return f"--share: {max(0.0, min(1.0, share)):.0%}"


def part(amount: float, number: int) -> str:
    """Return the style attribute of a part of a bar whose parts have widths in proportion to their amounts."""
    return f"flex: {amount:.6f}; background: hsl({(210 + 55 * number) % 360}, 50%, 60%)"


def shares(amounts: Iterable[float]) -> list[float]:
    """Return amounts as shares of the largest one."""
    known = list(amounts)
    largest = max(known, default=0.0) or 1.0
    return [amount / largest for amount in known]
