"""A fault that is planted in dynx.cudagraphs."""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """A wrong change of the source: `before` becomes `after` in `file`, and a test of `tests` has to fail."""

    what: str
    file: str
    before: str
    after: str
    tests: str
