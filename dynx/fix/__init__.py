"""Try the fixes of findings: run the program again with each of them, and keep those that help and change no output."""

from __future__ import annotations

from dynx.fix._judge import events_of, not_comparable
from dynx.fix._output import Tolerance
from dynx.fix._program import Program, Result
from dynx.fix._propose import experiments, rewritten
from dynx.fix._prune import prune
from dynx.fix._report import report_of
from dynx.fix._search import Limits, Search, first_run, search
from dynx.fix._source_file import write
from dynx.fix._written_files import snapshot, written

__all__ = [
    "Limits",
    "Program",
    "Result",
    "Search",
    "Tolerance",
    "events_of",
    "experiments",
    "first_run",
    "not_comparable",
    "prune",
    "report_of",
    "rewritten",
    "search",
    "snapshot",
    "write",
    "written",
]
