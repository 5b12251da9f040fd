"""`dynx.doctor()`: which parts of dynx work with the installed torch."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from dynx._torch.capabilities import HOOK_POINTS, Capability, capabilities

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, slots=True)
class Canary:
    """The result of one canary, which is a small program that tests a behaviour of torch on which dynx relies."""

    name: str
    failure: str | None  # None if torch behaves as expected


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """The result of `dynx.doctor`: whether torch has each private name that dynx uses, and the results of the test programs.

    The test programs are called canaries; `canaries` is empty if `doctor` was called without `canaries=True`.
    """

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
        """Whether `healthy` is True and each function of torch that dynx uses has the expected signature.

        If this is False, `dynx doctor --strict` exits with code 1.
        """
        return self.healthy and all(capability.state == "ok" or capability.optional for capability in self.capabilities)

    @property
    def broken_features(self) -> tuple[str, ...]:
        """The features that do not work, because this torch lacks a private name that they need."""
        return _features(name for name in self.capabilities if name.state == "missing" and not name.optional)

    @property
    def doubtful_features(self) -> tuple[str, ...]:
        """The features that may not work, because a function of torch that they need has another signature than expected."""
        changed = _features(name for name in self.capabilities if name.state == "changed")
        return tuple(feature for feature in changed if feature not in self.broken_features)

    @property
    def optional_features(self) -> tuple[str, ...]:
        """The optional features that this build of torch does not support, such as CUDA graphs on a GPU."""
        return _features(name for name in self.capabilities if name.state == "missing" and name.optional)

    def to_json(self) -> str:
        derived = ("healthy", "unchanged", "broken_features", "doubtful_features", "optional_features")
        return json.dumps(asdict(self) | {name: getattr(self, name) for name in derived}, indent=1)

    def __rich__(self) -> RenderableType:
        from dynx.report._doctor import screen

        return screen(self, full=False)

    def __repr__(self) -> str:
        deviations = [capability.name for capability in self.capabilities if capability.state != "ok"]
        deviations += [canary.name for canary in self.canaries if canary.failure]
        verdict = "healthy" if self.healthy else "unhealthy"
        return f"<DoctorReport torch {self.torch}: {verdict}{', check ' if deviations else ''}{', '.join(deviations)}>"


_RECORDED = frozenset(point.name for point in HOOK_POINTS)


def _features(names: Iterable[Capability]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(_feature, names)))


def _feature(name: Capability) -> str:
    """Return the feature of dynx that needs this name of torch: "CUDA graphs" if its purpose is "CUDA graphs: memory pools"."""
    if name.name in _RECORDED:
        return f"recording {name.purpose.partition(' (')[0]}"
    whole, is_part, _ = name.purpose.partition(": ")
    part, _, feature = name.purpose.partition(", in ")
    return whole if is_part else feature or part.partition(" (")[0]


def doctor(*, canaries: bool = False) -> DoctorReport:
    """Check that the installed torch has every private name that dynx needs.

    Nothing is reset or changed, and compiled functions keep their cache entries.

    Args:
        canaries: False (default) checks only that the names exist and have the expected signatures, which takes milliseconds.
            True also compiles a few small functions to check that torch behaves as expected, which takes seconds: use it
            after an upgrade of torch.

    Returns:
        A report with `healthy`, `unchanged`, `broken_features`, `to_json()` and `capabilities`, the state of each private name.
        Its text has three lines: whether torch has all names, which features do not work, and what to do; `dynx doctor
        --full` also prints the names.

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
