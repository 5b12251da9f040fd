"""Which names symbols have in the tests: those of torch, or with `make wide-ids` those of `symbols.install()`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from dynx import symbols

_SCHEME = os.environ.get("DYNX_SYMBOLS")
_handle = symbols.install(_SCHEME) if _SCHEME else None


@contextmanager
def names_of_torch() -> Iterator[None]:
    """Let torch name symbols, for tests of these names, and for tests that no function of torch stays replaced."""
    global _handle
    if _handle is None:
        yield
        return
    _handle.remove()
    try:
        yield
    finally:
        _handle = symbols.install(_SCHEME)
