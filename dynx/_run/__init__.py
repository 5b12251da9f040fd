"""`Run`: the records of a program with the advice on them, compared with another run, saved, loaded and shown."""

from __future__ import annotations

from dynx._run.run import Run, RunMembers

__all__ = ["Run", "RunMembers"]
