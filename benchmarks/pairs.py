"""Paired measurements: with, without, with, … and the ratio pair by pair, so that a drifting machine cancels out."""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path


@dataclass(frozen=True)
class Measured:
    """The median of paired ratios, or differences, with a bootstrap 95 % interval, against a bound."""

    name: str
    median: float
    low: float
    high: float
    pairs: int
    bound: float
    unit: str = "x"

    @property
    def holds(self) -> bool:
        """The bound holds when the interval reaches below it and the median is at most 1 % above it."""
        return self.low < self.bound and self.median <= self.bound * 1.01

    def __str__(self) -> str:
        verdict = "ok" if self.holds else "MISSED"
        found = f"{self.median:6.3f}{self.unit}  95% {self.low:.3f}-{self.high:.3f}  {self.pairs} pairs"
        return f"{self.name:<40} {found}  bound {self.bound:.2f}{self.unit}  {verdict}"


def difference(
    name: str, with_it: Callable[[], float], without: Callable[[], float], *, bound: float, unit: str, pairs: int = 31
) -> Measured:
    """Measure both in turn, as `ratio`, and give what the first has more."""
    return _measured(name, with_it, without, lambda a, b: a - b, bound, unit, pairs)


def ratio(name: str, with_it: Callable[[], float], without: Callable[[], float], *, bound: float, pairs: int = 15) -> Measured:
    """Measure both in turn; the order within a pair alternates. The functions give the quantity, seconds or bytes."""
    return _measured(name, with_it, without, lambda a, b: a / b, bound, "x", pairs)


def _measured(
    name: str,
    with_it: Callable[[], float],
    without: Callable[[], float],
    compare: Callable[[float, float], float],
    bound: float,
    unit: str,
    pairs: int,
) -> Measured:
    with_it(), without()  # warm up
    values = []
    for number in range(pairs):
        if number % 2:
            b = without()
            a = with_it()
        else:
            a = with_it()
            b = without()
        values.append(compare(a, b))
    low, high = bootstrap(values)
    return Measured(name, statistics.median(values), low, high, pairs, bound, unit)


def bootstrap(values: list[float], rounds: int = 4000) -> tuple[float, float]:
    chance = random.Random(0)
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(rounds))
    return medians[int(rounds * 0.025)], medians[int(rounds * 0.975)]


def report(title: str, measured: list[Measured], out: Path | None) -> int:
    """Print the table, write it as JSON when asked, and give the exit code: 1 when a bound is missed."""
    import torch

    print(f"{title}   torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}")
    for each in measured:
        print(" ", each)
    if out is not None:
        device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
        data = {
            "title": title,
            "torch": str(torch.__version__),
            "device": device,
            "date": datetime.now(UTC).date().isoformat(),
            "ratios": [asdict(each) | {"holds": each.holds} for each in measured],
        }
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(data, indent=1) + "\n")
    return 0 if all(each.holds for each in measured) else 1


def out_option(description: str | None) -> Path | None:
    """Parse the command line before anything is measured; the description is the docstring of the benchmark."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path, metavar="FILE", help="write the ratios as JSON to this file")
    return options.parse_args().out
