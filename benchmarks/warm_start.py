"""What a second process compiles again: torch with its own profile (job id), and with `pgo.warm_start()`, beside each other.

python benchmarks/warm_start.py [--out benchmarks/results/warm-start-cpu.json] [--programs 50] [--only second]
Each row is two fresh processes with different PYTHONHASHSEED, which share a cache directory that is empty at first.
Bounds: the second process misses neither the FX graph cache nor AOTAutograd's, so never more than with torch's own profile; its
calls of the training program take half the time of torch's; the keys of random programs with 2, 5, 10 and 20 dynamic sizes
all match.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).parent / "warm"
NAMES = (
    "bias_rows", "two_dims", "two_dims_again", "steps", "training", "nonzero", "nonzero_again", "over_marked", "train_width",
    "sequential", "attention", "gpt2", "bert", "llama",
)  # fmt: skip
COUNTS = ("compiles", "fx_hits", "fx_misses", "aot_hits", "aot_misses")
TIMED, PAIRS, BOUND = "training", 5, 0.5


def process(script: str, *args: object, directory: str, seed: int, **variables: str) -> object:
    """Run a script in a process of its own, and return what it printed as JSON."""
    variables |= {"TORCHINDUCTOR_CACHE_DIR": directory, "PYTHONHASHSEED": str(seed)}
    command = [sys.executable, str(HERE / script), *map(str, args)]
    done = subprocess.run(command, env=os.environ | variables, text=True, capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def second_process(name: str, scheme: str) -> dict[str, float]:
    """Run a program twice, and return what the second process compiled."""
    with tempfile.TemporaryDirectory() as directory:
        profile = "torch" if scheme == "torch" else f"{directory}/profile.json"
        job = {"TORCH_COMPILE_JOB_ID": "job"} if scheme == "torch" else {}  # torch keeps a profile of its own
        process("programs.py", name, 0, profile, directory=directory, seed=1, **job)
        return process("programs.py", name, 1, profile, directory=directory, seed=2, **job)


def matching(amount: int, programs: int, scheme: str) -> int:
    """Return the number of random programs whose key is the same in the second process."""
    with tempfile.TemporaryDirectory() as directory:
        first, second = (
            process("random_symbols.py", amount, programs, run, scheme, directory=directory, seed=run + 1) for run in (0, 1)
        )
    return sum(a == b for a, b in zip(first, second, strict=True))


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path, metavar="FILE", help="write the numbers as JSON to this file")
    options.add_argument("--programs", type=int, default=50, help="random programs for each number of sizes")
    options.add_argument("--only", choices=("second",), help="second: only the table of second processes")
    options.add_argument("--names", nargs="+", choices=NAMES, default=NAMES, metavar="NAME", help="only these second processes")
    arguments = options.parse_args()
    rows, ok = second_processes(arguments.names)
    data: dict[str, object] = {"second_process": rows}
    if arguments.only is None:
        ok &= further_measurements(arguments.programs, data)
    if arguments.out is not None:
        import torch

        head = {"title": "warm start", "torch": str(torch.__version__), "device": "cpu"}
        head["date"] = datetime.now(UTC).date().isoformat()
        arguments.out.write_text(json.dumps(head | data, indent=1) + "\n")
    return 0 if ok else 1


def second_processes(names: Sequence[str]) -> tuple[dict[str, dict[str, dict[str, float]]], bool]:
    """Print the table of hits and misses; return its numbers, and whether they are within the bounds."""
    print(f"{'second process':<16}{'compiles':>14}{'FX hit/miss':>18}{'AOTAutograd hit/miss':>24}")
    print(f"{'':<16}{'torch':>8}{'dynx':>6}{'torch':>12}{'dynx':>6}{'torch':>18}{'dynx':>6}")
    rows, ok = {}, True
    for name in names:
        rows[name] = both = {scheme: second_process(name, scheme) for scheme in ("torch", "dynx")}
        torch, dynx = both["torch"], both["dynx"]
        cells = [(f"{row['fx_hits']}/{row['fx_misses']}", f"{row['aot_hits']}/{row['aot_misses']}") for row in (torch, dynx)]
        worse = any(dynx[key] > 0 for key in ("fx_misses", "aot_misses"))
        ok &= not worse
        print(
            f"{name:<16}{torch['compiles']:>8}{dynx['compiles']:>6}{cells[0][0]:>12}{cells[1][0]:>6}{cells[0][1]:>18}{cells[1][1]:>6}"
            + ("  MISSED" if worse else ""),
            flush=True,
        )
    totals = [
        sum(row[scheme][key] for row in rows.values()) for key in ("fx_misses", "aot_misses") for scheme in ("torch", "dynx")
    ]
    print("misses in all: FX graph cache torch {}, dynx {}; AOTAutograd cache torch {}, dynx {}".format(*totals), flush=True)
    return rows, ok


def further_measurements(programs: int, data: dict[str, object]) -> bool:
    """Measure the time of a second process and the keys of random programs; return whether they are within the bounds."""
    times = [second_process(TIMED, "dynx")["seconds"] / second_process(TIMED, "torch")["seconds"] for _ in range(PAIRS)]
    ratio = statistics.median(times)
    ok = ratio <= BOUND
    print(
        f"{TIMED}: time of the calls in the second process, dynx / torch: {ratio:.2f}x (bound {BOUND}x, {PAIRS} pairs)",
        flush=True,
    )
    matches = {}
    for amount in (2, 5, 10, 20):
        matches[amount] = {scheme: matching(amount, programs, scheme) for scheme in ("torch", "blake63")}
        ok &= matches[amount]["blake63"] == programs
        found = ", ".join(f"{scheme} {count} of {programs}" for scheme, count in matches[amount].items())
        print(f"random programs with {amount} dynamic sizes, same key: {found}", flush=True)
    data |= {"ratio": {TIMED: ratio, "pairs": times}, "same_keys": matches, "programs": programs}
    return ok


if __name__ == "__main__":
    sys.exit(main())
