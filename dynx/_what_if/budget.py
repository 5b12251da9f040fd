"""How long the traces of what-ifs may take in a run."""

from __future__ import annotations

from dataclasses import dataclass

SHARE = 0.1  # of the compile time, unless the user asks for another
_MOST = 1.0  # of the compile time, for the first traces of a finding
_MOST_SHORT = 1.5  # for those that take less than _SHORT: long ones of one finding leave something for the next
_SHORT = 0.5  # seconds
_IN_ADVANCE = 5.0  # seconds of compiling that count from the start: in a small program, most advice is tried


@dataclass
class Budget:
    """The time that traces may take: a share of the compile time, but as long as it for the first traces of a finding.

    Attributes:
        share: of the compile time; `math.inf` for no limit.
        compiling: seconds that torch has spent compiling.
        spent: seconds that were spent tracing.
        cut: number of traces that were left out.
    """

    share: float
    compiling: float = 0.0
    spent: float = 0.0
    cut: int = 0

    def allows(self, seconds: float, *, is_free: bool) -> bool:
        """Return whether a trace may take `seconds`; the first traces of a finding are `is_free`."""
        most = _MOST_SHORT if seconds < _SHORT else _MOST
        share = max(self.share, most) if is_free else self.share
        if self.spent + seconds <= share * (_IN_ADVANCE + self.compiling):
            return True
        self.cut += 1
        return False
