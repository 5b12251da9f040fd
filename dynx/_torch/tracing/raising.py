"""Raise exceptions in Dynamo's tracer: graph breaks on request, and errors that reach the user."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from types import FrameType
from typing import Any, NoReturn

from dynx.errors import ComptimeFailed


def graph_break(message: str) -> NoReturn:
    """Break the graph at the instruction that Dynamo is tracing."""
    from torch._dynamo import exc

    unimplemented: Callable[..., NoReturn] = exc.unimplemented
    unimplemented(
        gb_type="ComptimeContext graph break",
        context=message,
        explanation=f"Manually triggered ComptimeContext graph break with message {message}.",
        hints=[],
    )


def is_of_torch(error: BaseException) -> bool:
    """Return whether an exception is one of Dynamo's own, such as a graph break, a restart, or an exception of traced code."""
    from torch._dynamo import exc

    return isinstance(error, (exc.TorchDynamoException, exc.ObservedException))


def visible_to_user(text: str, kind: Any = ComptimeFailed, *also: Any) -> Exception:
    """Return an exception that Dynamo does not wrap in another exception; its class inherits from `kind` and all of `also`.

    Dynamo wraps most exceptions that are raised while it traces in `InternalTorchDynamoError`, but not `ShortenTraceback`, from
    which the returned exception inherits too. The traceback that the user sees begins at the caller of this function.
    """
    return _unwrapped_class(kind, *also)(text, sys._getframe(1))


@cache
def _unwrapped_class(kind: Any, *also: Any) -> type[Exception]:
    from torch._dynamo.exc import ShortenTraceback

    class Failed(kind, *also, ShortenTraceback):  # type: ignore[misc]
        def __init__(self, text: str, frame: FrameType) -> None:
            ShortenTraceback.__init__(self, text, first_useful_frame=frame)

    Failed.__name__, Failed.__qualname__, Failed.__module__ = kind.__name__, kind.__qualname__, kind.__module__
    return Failed
