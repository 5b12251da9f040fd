"""Print on streams whose encoding lacks characters: terminals with `LC_ALL=C` or Latin-1, and files opened so."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def encodable(*streams: Any) -> Iterator[None]:
    """Print a question mark for what a stream cannot encode, instead of raising UnicodeEncodeError; restored at the end."""
    changed = [(stream, stream.errors) for stream in streams if _may_fail(stream)]
    for stream, _ in changed:
        stream.reconfigure(errors="replace")
    try:
        yield
    finally:
        for stream, errors in changed:
            with contextlib.suppress(ValueError):  # it was closed meanwhile
                stream.reconfigure(errors=errors)


def _may_fail(stream: Any) -> bool:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return hasattr(stream, "reconfigure") and not encoding.lower().replace("-", "").startswith("utf")
