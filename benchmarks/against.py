"""How much more, or less, of the CPU a call takes than with another version of dynx, in the same process, in turn.

The other version is loaded beside this one, under another name. Bound: half a microsecond more for fast paths and recorded
training steps, a twentieth of the time of the other rows.

git worktree add ../before COMMIT
python benchmarks/against.py ../before [--rounds 150] [--out benchmarks/results/against-h100.json]
Exits with 1 when a bound is missed, with 3 when one is undecided.
"""

from __future__ import annotations

import argparse
import importlib
import re
import shutil
import statistics
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

from host_calls import microseconds, rows
from pairs import MOST, Measured, bootstrap, report

HALF_A_MICROSECOND = ("fast_path", "train_step")
BESIDE = "dynx_before"


def cudagraphs_of(folder: Path) -> Any:
    """Import `dynx.cudagraphs` from a folder, under a name that leaves room for the dynx that is imported already."""
    copy = Path(tempfile.mkdtemp())
    shutil.copytree(folder / "dynx", copy / BESIDE, ignore=shutil.ignore_patterns("__pycache__"))
    for path in copy.rglob("*.py"):
        path.write_text(re.sub(r"\bdynx\b", BESIDE, path.read_text()))
    sys.path.append(str(copy))
    return importlib.import_module(f"{BESIDE}.cudagraphs")


def more_than_before(name: str, pairs: list[tuple[float, float]]) -> Measured:
    differences = [after - earlier for earlier, after in pairs]
    usual = statistics.median(earlier for earlier, _ in pairs)
    bound = 0.5 if name.startswith(HALF_A_MICROSECOND) else usual / 20
    title = f"{name}, before {usual:.1f} us"
    return Measured(title, statistics.median(differences), *bootstrap(differences), len(pairs), bound, " us")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="a folder with the other dynx")
    parser.add_argument("--rounds", type=int, default=150, help="pairs; four times as many where they do not decide")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    before, now = rows(cudagraphs_of(options.before)), rows(importlib.import_module("dynx.cudagraphs"))
    for call in (*before.values(), *now.values()):
        for _ in range(8):  # compile and record
            call()
    results: dict[str, Measured] = {}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in now}
    undecided = list(now)
    while undecided and len(times[undecided[0]]) < MOST * options.rounds:
        for number in range(options.rounds):
            for name in undecided:
                calls = [before[name], now[name]]
                turns = calls if number % 2 else calls[::-1]
                measured = {id(call): microseconds(call) for call in turns}
                times[name].append((measured[id(calls[0])], measured[id(calls[1])]))
        results |= {name: more_than_before(name, times[name]) for name in undecided}
        undecided = [name for name in undecided if results[name].verdict == "undecided"]
    return report("Host time of a call, more than before", list(results.values()), options.out)


if __name__ == "__main__":
    sys.exit(main())
