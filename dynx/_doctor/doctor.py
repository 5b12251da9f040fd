"""`dynx doctor`: what dynx can see on the installed torch."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass
from typing import Any

from dynx._torch.capabilities import Capability, capabilities


@dataclass(frozen=True, slots=True)
class Canary:
    """One behaviour of torch that dynx builds on, tried on a tiny program."""

    name: str
    failure: str | None  # None: torch behaves as expected


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """What the installed torch offers dynx; `canaries` are empty unless asked for."""

    torch: str
    python: str
    capabilities: tuple[Capability, ...]
    canaries: tuple[Canary, ...] = ()

    @property
    def healthy(self) -> bool:
        """True when nothing that dynx needs is missing and every canary sang."""
        return not any(each.state == "missing" and not each.optional for each in self.capabilities) and not any(
            each.failure for each in self.canaries
        )

    @property
    def unchanged(self) -> bool:
        """True when torch is exactly as dynx knows it: the condition of `dynx doctor --strict`."""
        return self.healthy and all(each.state == "ok" or each.optional for each in self.capabilities)

    def to_json(self) -> str:
        return json.dumps(asdict(self) | {"healthy": self.healthy, "unchanged": self.unchanged}, indent=1)

    def __rich__(self) -> Any:
        from dynx.report._doctor import screen

        return screen(self)

    def __repr__(self) -> str:
        bad = [each.name for each in self.capabilities if each.state != "ok"] + [
            each.name for each in self.canaries if each.failure
        ]
        verdict = "healthy" if self.healthy else "unwell"
        return f"<DoctorReport torch {self.torch}: {', look at '.join([verdict, ', '.join(bad)]) if bad else verdict}>"


def doctor(canaries: bool = False) -> DoctorReport:
    """Check that the installed torch has what dynx needs.

    Looks at attributes and signatures only; with `canaries` it also compiles a few tiny functions (seconds) to see that they
    still mean what they meant. Nothing is reset or changed.

    >>> import dynx
    >>> dynx.doctor().healthy
    True
    """
    import torch

    sung: tuple[Canary, ...] = ()
    if canaries:
        from dynx._doctor.canaries import CANARIES

        sung = tuple(_try(name, canary) for name, canary in CANARIES.items())
    return DoctorReport(str(torch.__version__), platform.python_version(), capabilities(), sung)


def _try(name: str, canary: Any) -> Canary:
    try:
        canary()
    except Exception as error:  # noqa: BLE001 - whatever goes wrong is the finding
        return Canary(name, f"{type(error).__name__}: {error}")
    return Canary(name, None)
