"""Try fixes for the findings on a program: run it again with each fix, and keep those that help and change no output."""

from __future__ import annotations

from dynx.fix._output import Tolerance
from dynx.fix._program import Program
from dynx.fix._run import apply, run
from dynx.fix._search import Limits
from dynx.records.fix_report import FixReport

__all__ = ["FixReport", "Limits", "Program", "Tolerance", "apply", "run"]
