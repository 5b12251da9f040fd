"""Mutation tests of dynx.cudagraphs: `make faults`.

Each fault of the other files of this folder changes a few words in a copy of the package; the tests that it names have to fail.
Exits with 1 if they pass with a fault. Some need a GPU, and are left out without one. A crash and tests that never end count as
failures: both are what threads and freed memory may lead to.

python tests/faults/cudagraphs.py ["gpu", or a part of the name of a file or of a fault]
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

import compiled
import functions
import graph
import on_cuda
import pytest
import recording
import runtime
import state
import torch
from fault import Fault

FAULTS = tuple(fault for room in (compiled, functions, graph, recording, runtime, state, on_cuda) for fault in room.FAULTS)
ROOT = Path(__file__).parent.parent.parent
PACKAGE = "dynx/cudagraphs"
LIMIT = 120  # seconds for the test of one fault, which takes less than 20 on two cores; deadlocks take as long
TESTS_FAILED = 100  # an exit code that pytest and exceptions do not have
LOG = "output.txt"
# a server that imports torch once, for all faults; CUDA works in no fork of a process that has asked for its devices
CONTEXT = multiprocessing.get_context("spawn" if torch.cuda.is_available() else "forkserver")


class Tried(NamedTuple):
    fault: Fault
    detected: bool
    seconds: float
    output: str


def tried_with(fault: Fault) -> Tried:
    """Run the tests of a fault, which is detected if one of them fails, crashes or never ends."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "dynx", Path(folder) / "dynx", ignore=shutil.ignore_patterns("__pycache__"))
        path = Path(folder) / PACKAGE / fault.file
        path.write_text(path.read_text().replace(fault.before, fault.after))
        tests = [str(ROOT / "tests" / "cudagraphs" / name) for name in fault.tests.split()]
        options = ["-c", str(ROOT / "pyproject.toml"), "-x", "-q", "-p", "no:cacheprovider"]
        options += ["-m", "gpu" if fault.needs_cuda else "not gpu"]
        process = CONTEXT.Process(target=run_tests, args=(folder, [*options, *tests]))
        process.start()
        process.join(LIMIT)
        if process.exitcode is None:
            process.kill()
            process.join()
        output = (Path(folder) / LOG).read_text(errors="replace")[-4000:]
        if process.exitcode > 0 and process.exitcode != TESTS_FAILED:
            sys.exit(f"{fault.what}: the tests did not run\n{output}")
        return Tried(fault, process.exitcode != 0, time.monotonic() - begin, output)


def run_tests(folder: str, arguments: list[str]) -> None:
    """Run pytest with the copy of dynx in `folder`, in a process that has not imported dynx; exit with 0 or TESTS_FAILED."""
    paths = [folder, str(ROOT / "tests")]
    sys.path[:] = [*paths, *(path for path in sys.path if path != str(Path(__file__).parent))]
    os.environ["PYTHONPATH"] = os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])])
    os.chdir(folder)
    with open(LOG, "wb") as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
    code = pytest.main(arguments)
    sys.exit(TESTS_FAILED if code == pytest.ExitCode.TESTS_FAILED else int(code))


def check_without_fault(faults: list[Fault]) -> None:
    """Exit unless tests pass without a fault: those of faults that need CUDA, and a few which the default test run has too."""
    on_cuda = " ".join(sorted({name for fault in faults if fault.needs_cuda for name in fault.tests.split()}))
    few = Fault("no fault", "_config.py", "import os", "import os", "test_config.py test_emulator.py")
    checked = [few, few._replace(tests=on_cuda, needs_cuda=True)] if on_cuda else [few]
    for tried in map(tried_with, checked):
        if tried.detected:
            sys.exit(f"tests fail without a fault\n{tried.output}")


def main(only: str = "") -> int:
    for fault in FAULTS:
        if fault.before not in (ROOT / PACKAGE / fault.file).read_text():
            sys.exit(f"{fault.what}: {fault.file} does not contain {fault.before!r}\n  update the fault to the changed source")
    chosen = [fault for fault in FAULTS if (fault.needs_cuda if only == "gpu" else only in fault.file or only in fault.what)]
    tried = [fault for fault in chosen if torch.cuda.is_available() or not fault.needs_cuda]
    if CONTEXT.get_start_method() == "forkserver":
        CONTEXT.set_forkserver_preload(["pytest", "torch._inductor.compile_fx"])
    check_without_fault(tried)
    missed = 0
    with ThreadPoolExecutor(max(2, (os.cpu_count() or 2) // 2)) as pool:
        for result in as_completed([pool.submit(tried_with, fault) for fault in tried]):
            fault, detected, seconds, _ = result.result()
            missed += not detected
            print(f"{'detected' if detected else 'NOT DETECTED':12} {seconds:5.0f} s  {fault.file:24} {fault.what}", flush=True)
    print(f"{len(tried) - missed} of {len(tried)} faults detected; {len(chosen) - len(tried)} need a GPU")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
