"""Paired measurements: with, without, with, … and the ratio pair by pair, so that a drifting machine cancels out."""

from __future__ import annotations

import json
import platform
import random
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path


@dataclass(frozen=True)
class Ratio:
    """The median of paired ratios with a bootstrap 95 % interval, against a bound."""

    name: str
    median: float
    low: float
    high: float
    pairs: int
    bound: float

    @property
    def holds(self) -> bool:
        """The bound holds when the interval reaches below it and the median is at most 1 % above it."""
        return self.low < self.bound and self.median <= self.bound * 1.01

    def __str__(self) -> str:
        verdict = "ok" if self.holds else "MISSED"
        interval = f"{self.low:.3f}-{self.high:.3f}"
        return f"{self.name:<40} {self.median:6.3f}x  95% {interval}  {self.pairs} pairs  bound {self.bound:.2f}x  {verdict}"


def ratio(name: str, with_it: Callable[[], float], without: Callable[[], float], *, bound: float, pairs: int = 15) -> Ratio:
    """Measure both in turn; the order within a pair alternates. The functions give the quantity, seconds or bytes."""
    with_it(), without()  # warm up
    ratios = []
    for number in range(pairs):
        if number % 2:
            b = without()
            a = with_it()
        else:
            a = with_it()
            b = without()
        ratios.append(a / b)
    low, high = _bootstrap(ratios)
    return Ratio(name, statistics.median(ratios), low, high, pairs, bound)


def _bootstrap(values: list[float], rounds: int = 4000) -> tuple[float, float]:
    chance = random.Random(0)
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(rounds))
    return medians[int(rounds * 0.025)], medians[int(rounds * 0.975)]


def report(title: str, ratios: list[Ratio], out: Path | None) -> int:
    """Print the table, write it as JSON when asked, and give the exit code: 1 when a bound is missed."""
    import torch

    print(f"{title}   torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}")
    for each in ratios:
        print(" ", each)
    if out is not None:
        device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
        data = {
            "title": title,
            "torch": str(torch.__version__),
            "device": device,
            "date": datetime.now(UTC).date().isoformat(),
            "ratios": [asdict(each) | {"holds": each.holds} for each in ratios],
        }
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(data, indent=1) + "\n")
    return 0 if all(each.holds for each in ratios) else 1


def out_option() -> Path | None:
    return Path(sys.argv[sys.argv.index("--out") + 1]) if "--out" in sys.argv else None
