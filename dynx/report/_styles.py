"""Render HTML for notebooks from the templates in `_templates/`, which extend `base.html`; return CSS styles for bars."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader

from dynx.report._wrap import ordinary


def page(template: str, **values: Any) -> str:
    """Render a template of `dynx/report/_templates/`; `values` are escaped."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    return Environment(loader=PackageLoader("dynx.report", "_templates"), autoescape=True, finalize=_as_written)


def _as_written(value: Any) -> Any:
    return ordinary(value) if isinstance(value, str) else value


def bar(share: float) -> str:
    """Return the CSS style of a bar (an element of class `bar`) that is filled from the right by the fraction `share`."""
    return f"--share: {max(0.0, min(1.0, share)):.0%}"


def part(amount: float, number: int) -> str:
    """Return the CSS style of one part of a bar: its width is proportional to `amount`, its color depends on `number`."""
    return f"flex: {amount:.6f}; background: hsl({(210 + 55 * number) % 360}, 50%, 60%)"
