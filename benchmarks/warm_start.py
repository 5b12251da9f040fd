"""What a second process compiles again: torch, and torch with `dynx run --pgo` and `symbols.install()`, beside each other.

python benchmarks/warm_start.py [--out benchmarks/results/warm-start-cpu.json] [--programs 50]
Each row is two fresh processes with different PYTHONHASHSEED, which share a cache directory that is empty at first.
Bounds: with dynx no misses in the second process; its calls of the training program take half the time of torch's; the keys
of random programs with 2, 5, 10 and 20 dynamic sizes all match.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).parent / "warm"
NAMES = ("bias_rows", "two_dims", "steps", "training", "nonzero", "sequential", "attention", "gpt2", "bert", "llama")
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
    arguments = options.parse_args()
    print(f"{'second process':<16}{'compiles':>22}{'FX misses':>22}{'AOTAutograd misses':>22}")
    print(f"{'':<16}" + f"{'torch':>14}{'dynx':>8}" * 3)
    rows, ok = {}, True
    for name in NAMES:
        both = {scheme: second_process(name, scheme) for scheme in ("torch", "dynx")}
        rows[name] = both
        counts = [f"{both['torch'][key]:>14}{both['dynx'][key]:>8}" for key in ("compiles", "fx_misses", "aot_misses")]
        ok &= both["dynx"]["fx_misses"] == both["dynx"]["aot_misses"] == 0
        print(f"{name:<16}" + "".join(counts), flush=True)
    times = [second_process(TIMED, "dynx")["seconds"] / second_process(TIMED, "torch")["seconds"] for _ in range(PAIRS)]
    ratio = statistics.median(times)
    ok &= ratio <= BOUND
    print(
        f"{TIMED}: time of the calls in the second process, dynx / torch: {ratio:.2f}x (bound {BOUND}x, {PAIRS} pairs)",
        flush=True,
    )
    matches = {}
    for amount in (2, 5, 10, 20):
        matches[amount] = {scheme: matching(amount, arguments.programs, scheme) for scheme in ("torch", "blake63")}
        ok &= matches[amount]["blake63"] == arguments.programs
        found = ", ".join(f"{scheme} {count} of {arguments.programs}" for scheme, count in matches[amount].items())
        print(f"random programs with {amount} dynamic sizes, same key: {found}", flush=True)
    if arguments.out is not None:
        import torch

        data = {
            "title": "warm start",
            "torch": str(torch.__version__),
            "device": "cpu",
            "date": datetime.now(UTC).date().isoformat(),
        }
        data |= {
            "second_process": rows,
            "ratio": {TIMED: ratio, "pairs": times},
            "same_keys": matches,
            "programs": arguments.programs,
        }
        arguments.out.write_text(json.dumps(data, indent=1) + "\n")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
