"""Puts a call at random lines of the standard library and torch, and looks whether the program still does the same.

python tests/fuzz/rewrite.py [--seed 0] [--pairs 1000] [--torch]
Prints what it did; exits 1 at the first difference. A crash of the interpreter is the other way to fail.
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
    """Run a workload and give every line of Python that ran."""
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


def places(workload) -> list[tuple[FunctionType, int]]:
    """Give the lines that ran and the functions they belong to, in a fixed order."""
    lines = executed(workload)
    lines = {(code, line) for code, line in lines if statements.statement_at(code.co_filename, line)}  # not `except X:`
    functions = {each.__code__: each for each in gc.get_objects() if type(each) is FunctionType}
    found = [(functions[code], line) for code, line in lines if code in functions]
    return sorted(found, key=lambda each: (each[0].__code__.co_filename, each[1], each[0].__qualname__))


def with_call_at(function: FunctionType, line: int, workload) -> tuple[str, int]:
    """Run the workload with a call put at the line: the workload's value, and how often the call ran."""
    old = function.__code__
    statement = statements.statement_at(old.co_filename, line)
    ran = 0

    def called() -> None:
        nonlocal ran
        ran += 1

    function.__globals__[NAME] = called
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
    chance = random.Random(options.seed)
    chosen = workloads.STANDARD + ((workloads.with_torch,) if options.torch else ())
    done = never = 0
    for number, workload in enumerate(chosen):
        workload()  # imports and caches
        expected = repr(workload())
        candidates = places(workload)
        share = options.pairs // len(chosen) + (number < options.pairs % len(chosen))
        for function, line in chance.sample(candidates, min(share, len(candidates))):
            value, ran = with_call_at(function, line, workload)
            where = f"{function.__code__.co_filename}:{line} {function.__qualname__}"
            if value != expected:
                print(f"DIFFERENT {where}\n  without {expected[:300]}\n  with    {value[:300]}")
                return 1
            done += 1
            never += not ran  # a function made anew on each run: this one belongs to the first
    version = ".".join(map(str, sys.version_info[:3]))
    print(f"Python {version}: {done} places, same results; the call ran at {done - never}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
