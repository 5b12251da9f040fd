"""Views of runs and of records (results of dynx): for a terminal (rich), for a notebook (HTML), and as Perfetto traces.

This package is private: users print runs and records, which call it. It does not import torch. A view is imported when it is
first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dynx.report._comptime.post_mortem import fragment as post_mortem_html
    from dynx.report._comptime.post_mortem import screen as post_mortem
    from dynx.report._comptime.timeline import fragment as timeline_html
    from dynx.report._comptime.timeline import screen as timeline
    from dynx.report._html import fragment as html
    from dynx.report._perfetto import document as perfetto
    from dynx.report._processes import screen as processes
    from dynx.report._records import fragment as record_html
    from dynx.report._records import screen as record
    from dynx.report._terminal import screen as terminal

__all__ = [
    "html",
    "perfetto",
    "post_mortem",
    "post_mortem_html",
    "processes",
    "record",
    "record_html",
    "terminal",
    "timeline",
    "timeline_html",
]

_FUNCTIONS = {
    "html": ("_html", "fragment"),
    "perfetto": ("_perfetto", "document"),
    "post_mortem": ("_comptime.post_mortem", "screen"),
    "post_mortem_html": ("_comptime.post_mortem", "fragment"),
    "processes": ("_processes", "screen"),
    "record": ("_records", "screen"),
    "record_html": ("_records", "fragment"),
    "terminal": ("_terminal", "screen"),
    "timeline": ("_comptime.timeline", "screen"),
    "timeline_html": ("_comptime.timeline", "fragment"),
}


def __getattr__(name: str) -> Any:
    if name not in _FUNCTIONS:
        raise AttributeError(f"module 'dynx.report' has no attribute {name!r}")
    module, function = _FUNCTIONS[name]
    return getattr(import_module(f"dynx.report.{module}"), function)
