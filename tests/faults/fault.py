"""A fault that is planted in dynx.cudagraphs."""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """A wrong change of the source: `before` becomes `after` in `file`, and a test of `tests` has to fail.

    `needs_cuda` is for what the emulator does not have: streams, devices, threads that share a device.
    """

    what: str
    file: str
    before: str
    after: str
    tests: str
    needs_cuda: bool = False
