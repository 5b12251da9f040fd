"""`Run`: what torch.compile did in a program, with advice; a run can be saved, loaded, shown, and compared with another run."""

from __future__ import annotations

from dynx._run.run import Run, RunMembers

__all__ = ["Run", "RunMembers"]
