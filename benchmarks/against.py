"""How much more, or less, of the CPU a call takes than with another version of dynx: processes of both in turn, pair by pair.

Each row is the time of a call less that of a bare replay in the same process. Bound: half a microsecond more for fast paths and
recorded training steps, a twentieth of the time of the other rows.

git worktree add ../before COMMIT
python benchmarks/against.py ../before [--pairs 12] [--out benchmarks/results/against-h100.json]
Exits with 1 when a bound is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from pairs import Measured, bootstrap, report

HERE = Path(__file__).resolve().parent
HALF_A_MICROSECOND = ("fast_path", "train_step")


def measured_with(folder: Path) -> dict[str, float]:
    """Run the calls with the dynx in a folder; without the directory of the script, where the other version may be."""
    command = [sys.executable, "-P", str(HERE / "host_calls.py")]
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    process = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    if process.returncode:
        sys.exit(f"{HERE / 'host_calls.py'} failed with the dynx in {folder}\n{process.stderr[-2000:]}")
    times: dict[str, float] = json.loads(process.stdout.splitlines()[-1])
    replay = times.pop("replay")
    return {name: time - replay for name, time in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="a folder with the other dynx")
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    pairs = []
    for number in range(options.pairs):
        turns = [HERE.parent, options.before.resolve()]
        times = {folder: measured_with(folder) for folder in (turns if number % 2 else reversed(turns))}
        pairs.append([times[folder] for folder in turns])
    rows = []
    for name in pairs[0][0]:
        differences = [now[name] - before[name] for now, before in pairs]
        usual = statistics.median(before[name] for _, before in pairs)
        bound = 0.5 if name.startswith(HALF_A_MICROSECOND) else usual / 20
        rows.append(Measured(name, statistics.median(differences), *bootstrap(differences), len(pairs), bound, " us"))
    return report("Host time of a call, more than before", rows, options.out)


if __name__ == "__main__":
    sys.exit(main())
