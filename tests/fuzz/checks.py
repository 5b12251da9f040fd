"""Checks random programs that hold state in many ways: what `dynx.check` says against a comparison made by hand.

The comparison loads the program twice, calls it eagerly and compiled, and compares results and state. All programs are loaded
as modules of the same name, which torch imports once for all: its cache is cleared before each.

python tests/fuzz/checks.py [--programs 200] [--seed 0] [--fork]
Exits with 1 if a verdict is wrong, or an object of the program has changed without being named.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import os
import sys
import tempfile
import types
import warnings
from collections import Counter
from typing import Any

sys.path.insert(0, os.path.dirname(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))

import holding_programs
import torch
from support import untimed_guards

import dynx


def load(text: str, folder: str, number: int) -> types.ModuleType:
    """Return a new module with this source, beside a new helper module."""
    helper = sys.modules["fuzzed_helper"] = types.ModuleType("fuzzed_helper")
    helper.inner = sys.modules["fuzzed_helper.inner"] = types.ModuleType("fuzzed_helper.inner")
    path = os.path.join(folder, f"fuzzed_{number}.py")
    with open(path, "w") as file:
        file.write(text)
    spec = importlib.util.spec_from_file_location("fuzzed", path)
    module = sys.modules["fuzzed"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def plain(value: Any) -> Any:
    """Return a value that can be compared: tensors as lists, containers with their class and items."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, types.SimpleNamespace):
        return vars(value)
    if isinstance(value, dict):
        return type(value).__name__, [(key, plain(item)) for key, item in value.items()]
    if isinstance(value, (set, frozenset)):
        return type(value).__name__, sorted(value)
    if isinstance(value, (list, tuple)) or hasattr(value, "appendleft"):
        return type(value).__name__, [plain(item) for item in value]
    return value


def by_hand(text: str, folder: str, number: int, *, compiled: bool, calls: int = 2) -> Any:
    """Return the results of all calls, or the class of an exception, and the state after each call."""
    torch._dynamo.reset()
    torch._dynamo.symbolic_convert._import_module.cache_clear()
    module = load(text, folder, number)
    fn = torch.compile(module.f, backend="eager") if compiled else module.f
    outcomes = []
    for _ in range(calls):
        with torch.compiler.set_stance("default" if compiled else "force_eager"):
            try:
                outcomes.append(plain(fn(torch.ones(2))))
            except Exception as error:  # noqa: BLE001 - one of the results
                outcomes.append(type(error).__name__)
        outcomes.append([plain(state) for state in module.read()])
    return outcomes


def verdict(text: str, folder: str, number: int, *, fork: bool) -> tuple[str, str]:
    """Return what check says, and what is wrong with it; an empty text if nothing is."""
    is_same = by_hand(text, folder, number, compiled=False) == by_hand(text, folder, number, compiled=True)
    torch._dynamo.reset()
    module = load(text, folder, number)
    before = [plain(state) for state in module.read()]
    try:
        report = dynx.check(module.f, torch.ones(2), isolate="fork" if fork else "copy")
    except Exception as error:  # noqa: BLE001 - listed
        return "raised", f"{type(error).__name__}: {error}"
    if [plain(state) for state in module.read()] != before and not report.leaks:
        return report.outcome, "an object of the program changed and is not named"
    if report.outcome == "not isolated":
        return report.outcome, "" if report.leaks or report.unread else "names nothing"
    expected = "same" if is_same else "different"
    if report.outcome == "vacuous":
        return "vacuous", "" if is_same else "vacuous, but torch.compile does something else"
    return report.outcome, "" if report.outcome == expected else f"torch.compile does {expected} by hand: {report.text}"


def main() -> int:
    untimed_guards.install()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fork", action="store_true", help="check in forked processes")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    outcomes, wrong = Counter[str](), 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.programs):
            program = holding_programs.source(arguments.seed * 1_000_000 + number)
            outcome, problem = verdict(program.text, folder, number, fork=arguments.fork)
            outcomes[outcome] += 1
            if problem:
                wrong += 1
                print(f"program {number} ({', '.join(program.names)}): {problem}", flush=True)
    counts = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items()))
    print(f"torch {torch.__version__}: {arguments.programs} programs, {counts}: {wrong} problems")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
