"""Injects calls at random lines of the standard library and torch, and checks that programs still return the same.

python tests/fuzz/rewrite.py [--seed 0] [--pairs 1000] [--torch]
Prints a summary; exits with 1 at the first difference. A crash of the interpreter is the other way to fail.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import sys
from types import CodeType, FrameType, FunctionType

sys.path.insert(0, os.path.dirname(__file__))

import workloads

from dynx._bytecode import statements
from dynx._bytecode.inject import with_call

NAME = "__dynx_fuzz"
_OURS = (os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.path.dirname(os.path.abspath(statements.__file__))))


def executed(workload) -> set[tuple[CodeType, int]]:
    """Run a workload and return every line of Python that ran."""
    seen: set[tuple[CodeType, int]] = set()

    def trace(frame: FrameType, event: str, arg: object):
        code = frame.f_code
        if code.co_filename.startswith((*_OURS, "<")):
            return None
        if event == "line":
            seen.add((code, frame.f_lineno))
        return trace

    sys.settrace(trace)
    try:
        workload()
    finally:
        sys.settrace(None)
    return seen


def candidates_of(workload) -> list[tuple[FunctionType, int]]:
    """Return the functions and lines that a call can be injected at, in a fixed order."""
    lines = executed(workload)
    lines = {
        (code, line) for code, line in lines if statements.statement_at(code.co_filename, line)
    }  # no statement begins at `except X:`
    functions = {obj.__code__: obj for obj in gc.get_objects() if type(obj) is FunctionType}
    candidates = [(functions[code], line) for code, line in lines if code in functions]
    return sorted(candidates, key=lambda pair: (pair[0].__code__.co_filename, pair[1], pair[0].__qualname__))


def with_call_at(function: FunctionType, line: int, workload) -> tuple[str, int]:
    """Run the workload with a call injected at the line; return the workload's value and how often the call ran."""
    old = function.__code__
    statement = statements.statement_at(old.co_filename, line)
    ran = 0

    def count_call() -> None:
        nonlocal ran
        ran += 1

    function.__globals__[NAME] = count_call
    function.__code__ = with_call(old, NAME, statement)[0]
    try:
        return repr(workload()), ran
    finally:
        function.__code__ = old
        del function.__globals__[NAME]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--torch", action="store_true")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    chosen = workloads.STANDARD + ((workloads.with_torch,) if options.torch else ())
    done = never = 0
    for number, workload in enumerate(chosen):
        workload()  # fills import and other caches
        expected = repr(workload())
        candidates = candidates_of(workload)
        share = options.pairs // len(chosen) + (number < options.pairs % len(chosen))
        for function, line in rng.sample(candidates, min(share, len(candidates))):
            value, ran = with_call_at(function, line, workload)
            where = f"{function.__code__.co_filename}:{line} {function.__qualname__}"
            if value != expected:
                print(f"DIFFERENT {where}\n  without {expected[:300]}\n  with    {value[:300]}")
                return 1
            done += 1
            never += not ran  # each run creates some functions again; the call was injected into that of an earlier run
    version = ".".join(map(str, sys.version_info[:3]))
    print(f"Python {version}: {done} lines, same results; the call ran at {done - never}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
