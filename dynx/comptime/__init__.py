"""Look at, and act on, what torch.compile does while it traces a program.

Importing this adds one entry to torch's own table of known objects and changes nothing else.
"""

from __future__ import annotations

from dynx.comptime._comptime import comptime
from dynx.comptime._context import ComptimeContext
from dynx.comptime._debug_session import debug
from dynx.comptime._post_mortem import PostMortem, post_mortem
from dynx.comptime._probe import Probe, probe
from dynx.comptime._timeline import Timeline, timeline
from dynx.comptime._var import ComptimeVar

__all__ = [
    "ComptimeContext",
    "ComptimeVar",
    "PostMortem",
    "Probe",
    "Timeline",
    "comptime",
    "debug",
    "post_mortem",
    "probe",
    "timeline",
]
