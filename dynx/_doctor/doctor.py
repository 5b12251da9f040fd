"""`dynx.doctor()`: which parts of dynx work with the installed torch."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from dynx._torch.capabilities import Capability, capabilities

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, slots=True)
class Canary:
    """The result of one canary: a behaviour of torch that dynx relies on, tested with a small program."""

    name: str
    failure: str | None  # None if torch behaves as expected


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """The result of `dynx.doctor`: one capability per private name of torch, and the canaries if they were run."""

    torch: str
    python: str
    capabilities: tuple[Capability, ...]
    canaries: tuple[Canary, ...] = ()

    @property
    def healthy(self) -> bool:
        """Whether torch has every private name that dynx needs, and no canary failed."""
        missing = any(capability.state == "missing" and not capability.optional for capability in self.capabilities)
        return not missing and not any(canary.failure for canary in self.canaries)

    @property
    def unchanged(self) -> bool:
        """Whether the report is healthy and no signature in torch has changed: the condition of `dynx doctor --strict`."""
        return self.healthy and all(capability.state == "ok" or capability.optional for capability in self.capabilities)

    def to_json(self) -> str:
        return json.dumps(asdict(self) | {"healthy": self.healthy, "unchanged": self.unchanged}, indent=1)

    def __rich__(self) -> RenderableType:
        from dynx.report._doctor import screen

        return screen(self)

    def __repr__(self) -> str:
        deviations = [capability.name for capability in self.capabilities if capability.state != "ok"]
        deviations += [canary.name for canary in self.canaries if canary.failure]
        verdict = "healthy" if self.healthy else "unhealthy"
        return f"<DoctorReport torch {self.torch}: {verdict}{', check ' if deviations else ''}{', '.join(deviations)}>"


def doctor(*, canaries: bool = False) -> DoctorReport:
    """Check that the installed torch has everything that dynx needs.

    Nothing is reset or changed, and compiled functions keep their cache entries.

    Args:
        canaries: False (default) checks only that attributes exist and have the expected signatures, which takes milliseconds.
            True also compiles a few small functions to check that they behave as expected, which takes seconds: use it after
            an upgrade of torch.

    Returns:
        A report with one capability for each private name of torch, `healthy`, `unchanged` and `to_json()`.

    Example:
        >>> import dynx
        >>> dynx.doctor().healthy
        True
    """
    import torch

    results: tuple[Canary, ...] = ()
    if canaries:
        from dynx._doctor.canaries import CANARIES

        results = tuple(_run(name, canary) for name, canary in CANARIES.items())
    return DoctorReport(str(torch.__version__), platform.python_version(), capabilities(), results)


def _run(name: str, canary: Callable[[], None]) -> Canary:
    try:
        canary()
    except Exception as error:  # noqa: BLE001 - any exception is the result
        return Canary(name, f"{type(error).__name__}: {error}")
    return Canary(name, None)
