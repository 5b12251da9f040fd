"""The line of user code that Dynamo traces, for error messages."""

from __future__ import annotations

from typing import Any

from dynx._reading.user_location import location_of, user_location
from dynx._torch.tracing import translator
from dynx._torch.tracing.stack import tracing_stack


def traced_line(tx: Any) -> str:
    """Return the line of user code being traced; inside a helper of dynx such as `comptime.print`, the line that called it."""
    return str(user_location(tracing_stack()) or location_of(translator.location(tx)))
