"""Paired measurements: with, without, with, … and the ratio pair by pair, so that a drifting machine cancels out."""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

Verdict = Literal["ok", "MISSED", "undecided"]
MOST = 4  # times as many pairs as at first, where they do not decide
LONGEST = 120  # seconds of one row, after which its verdict is "undecided"
UNDECIDED = 3  # exit code


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
    def verdict(self) -> Verdict:
        """Whether the whole interval is within the bound or above it; "undecided" where the bound is in the interval."""
        if self.high <= self.bound:
            return "ok"
        return "MISSED" if self.low > self.bound else "undecided"

    def __str__(self) -> str:
        found = f"{self.median:6.3f}{self.unit}  95% {self.low:.3f}-{self.high:.3f}  {self.pairs} pairs"
        return f"{self.name:<40} {found}  bound {self.bound:.2f}{self.unit}  {self.verdict}"


def ratio(name: str, with_it: Callable[[], float], without: Callable[[], float], *, bound: float, pairs: int = 15) -> Measured:
    """Measure both in turn, the order within a pair alternating; where that does not decide, up to four times as many pairs.

    The functions give the quantity: seconds, or bytes. A bound is a ratio to something that is measured in turn with it,
    since a machine may be slow for a moment. The row is printed as soon as it is decided, or has taken `LONGEST` seconds.
    """
    with_it(), without()  # warm up
    values: list[float] = []
    end = time.monotonic() + LONGEST
    while True:
        values += [_one_pair(with_it, without, number) for number in range(pairs)]
        measured = Measured(name, statistics.median(values), *bootstrap(values), len(values), bound)
        if measured.verdict != "undecided" or len(values) >= MOST * pairs or time.monotonic() > end:
            print(" ", measured, file=sys.stderr, flush=True)  # the table comes when all rows are there
            return measured


def _one_pair(with_it: Callable[[], float], without: Callable[[], float], number: int) -> float:
    if number % 2:
        reference = without()
        return with_it() / reference
    found = with_it()
    return found / without()


def bootstrap(values: list[float], rounds: int = 4000) -> tuple[float, float]:
    chance = random.Random(0)
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(rounds))
    return medians[int(rounds * 0.025)], medians[int(rounds * 0.975)]


def report(title: str, measured: list[Measured], out: Path | None) -> int:
    """Print the table, write it as JSON when asked, and give the exit code: 1 for a missed bound, 3 for an undecided one."""
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
            "ratios": [asdict(each) | {"verdict": each.verdict} for each in measured],
        }
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(data, indent=1) + "\n")
    verdicts = {each.verdict for each in measured}
    return 1 if "MISSED" in verdicts else UNDECIDED if "undecided" in verdicts else 0


def out_option(description: str | None) -> Path | None:
    """Parse the command line before anything is measured; the description is the docstring of the benchmark."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path, metavar="FILE", help="write the ratios as JSON to this file")
    return options.parse_args().out
