"""Tries random cases, and makes what differs as short as it still differs."""

from __future__ import annotations

import argparse
import logging
import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from dynx import cudagraphs
from dynx.errors import UsageError

Case = TypeVar("Case")


def search(
    make: Callable[[random.Random, str], Case],
    tried: Callable[[Case, str], str],
    shorter: Callable[[Case], Iterator[Case]],
    show: Callable[[Case], str],
    what: str,
) -> int:
    """Try the cases that the command line asks for, print those that differ, and give what to exit with.

    `make` makes a case of a chance and a device; `tried` gives how it differs, empty where it does not.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)

    def found_by(case: Case) -> str:
        try:
            return tried(case, options.device)
        except Exception as error:  # noqa: BLE001  # of a program that is wrong, or of what is tried
            return f"{type(error).__name__}: {error}"

    different = replays = refused = 0
    for seed in range(options.seed, options.seed + options.programs):
        cudagraphs.reset()
        case = make(random.Random(seed), options.device)
        found = found_by(case)
        replays += cudagraphs.stats().replays
        if found.startswith(UsageError.__name__):
            refused += 1
        elif found:
            different += 1
            short = _shortened(case, shorter, lambda each: _kind_of(found_by(each)))
            print(f"DIFFERENT: seed {seed}, {show(short)}\n  {found[:600]}\n  {found_by(short)[:600]}", flush=True)
    print(f"{options.programs} {what}, {refused} of them refused, {replays} replays, {different} different")
    return int(different > 0)


def _kind_of(found: str) -> tuple[str, ...]:
    """Give what stays of a message when a program becomes shorter."""
    words = found.split()[2:] if found.startswith("call ") else found.split()
    return (*words[:1], *(each for each in ("nan", "memory", "raised", "torch.") if each in found))


def _shortened(case: Case, shorter: Callable[[Case], Iterator[Case]], kind_of: Callable[[Case], Any]) -> Case:
    """Take a shorter case again and again, as long as there is one of the same kind."""
    kind = kind_of(case)
    while (found := next((each for each in shorter(case) if kind_of(each) == kind), None)) is not None:
        case = found
    return case


def without(values: tuple[Any, ...], index: int) -> tuple[Any, ...]:
    return values[:index] + values[index + 1 :]
