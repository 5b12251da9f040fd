"""`stable_closure_hash`: hash closures alike in every process, so that a PGO profile fits functions with a closure."""

from __future__ import annotations

from dynx._handle import Handle
from dynx._torch.shapes.closure_hash import stabilize


class StableClosureHash(Handle):
    """Handle that replaces torch's hash of the functions in a closure (see `stable_closure_hash`), until `remove()`."""

    def __init__(self) -> None:
        self._wrapping = stabilize()

    def remove(self) -> None:
        """Hash closures as torch does, from the next compilation on."""
        if self._wrapping is not None:
            self._wrapping.remove()


def stable_closure_hash() -> StableClosureHash:
    """Hash the functions in a closure by code, names and constants, so that a profile (PGO) is valid in other processes.

    torch uses `hash()` of the code objects, which depends on PYTHONHASHSEED and on addresses: for a function with a closure,
    torch learns the dynamic sizes again in each process, and the stored profile grows each time. The new hash applies to
    torch's own profile too. Call this function in each process before the first compilation. torch 2.11 does not hash closures,
    and is not changed.

    The hash depends on the version of Python, as bytecode does.

    Returns:
        A handle and context manager; `remove()` restores torch's method exactly.

    Raises:
        UnsupportedTorch: torch has no `torch._dynamo.pgo.CodeId.make`.

    Example:
        >>> from dynx import pgo
        >>> with pgo.stable_closure_hash():
        ...     pass  # the program
    """
    return StableClosureHash()
