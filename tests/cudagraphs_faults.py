"""Plants faults in dynx.cudagraphs, one at a time, and sees that its tests notice: `make faults`.

Each fault of `cudagraphs_fault_list.py` changes one place of a copy of the package; the tests that it names have to fail.
Exits with 1 when a fault is not noticed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cudagraphs_fault_list import FAULTS, Fault

ROOT = Path(__file__).parent.parent
PACKAGE = "dynx/cudagraphs"


def is_noticed(fault: Fault) -> tuple[Fault, bool, float]:
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "dynx", Path(folder) / "dynx", ignore=shutil.ignore_patterns("__pycache__"))
        path = Path(folder) / PACKAGE / fault.file
        path.write_text(path.read_text().replace(fault.before, fault.after))
        tests = [str(ROOT / "tests" / "cudagraphs" / name) for name in fault.tests.split()]
        options = ["-c", str(ROOT / "pyproject.toml"), "-x", "-q", "-p", "no:cacheprovider", "-m", "not gpu"]
        command = [sys.executable, "-m", "pytest", *options, *tests]  # which looks first where it is run
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([folder, str(ROOT / "tests")])}
        found = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if found.returncode not in (0, 1):
        sys.exit(f"{fault.what}: the tests did not run\n{found.stdout[-2000:]}{found.stderr[-2000:]}")
    return fault, found.returncode == 1, time.monotonic() - begin


NOTHING = Fault("nothing", "_config.py", "import os", "import os", "test_config.py test_emulator.py")


def main(only: str = "") -> int:
    for each in FAULTS:
        if each.before not in (ROOT / PACKAGE / each.file).read_text():
            sys.exit(f"{each.what}: {each.file} has no {each.before!r}\n  write the fault anew")
    if is_noticed(NOTHING)[1]:
        sys.exit("tests fail without a fault")
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(is_noticed, [each for each in FAULTS if only in each.file]))
    for fault, noticed, seconds in found:
        print(f"{'noticed' if noticed else 'NOT NOTICED':12} {seconds:5.0f} s  {fault.file:24} {fault.what}")
    missed = sum(not noticed for _, noticed, _ in found)
    print(f"{len(found) - missed} of {len(found)} faults noticed")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
