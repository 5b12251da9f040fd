"""Searches random cases for a disagreement between captured and eager runs, and minimizes the cases found."""

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
    make_case: Callable[[random.Random, str], Case],
    disagreement: Callable[[Case, str], str],
    simpler: Callable[[Case], Iterator[Case]],
    describe: Callable[[Case], str],
    noun: str,
) -> int:
    """Try the cases that the command line asks for, print those that disagree, and return the exit status.

    Args:
        make_case: takes a random generator and a device, and returns a case.
        disagreement: takes a case and a device, and returns how the runs differ, empty if they do not.
        simpler: yields cases that are one step simpler.
        describe: returns a case as text.
        noun: what the cases are, in the plural.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)

    def message_of(case: Case) -> str:
        try:
            return disagreement(case, options.device)
        except Exception as error:  # noqa: BLE001  # by the program itself, or by dynx
            return f"{type(error).__name__}: {error}"

    disagreeing = replays = refused = 0
    for seed in range(options.seed, options.seed + options.programs):
        cudagraphs.reset()
        case = make_case(random.Random(seed), options.device)
        message = message_of(case)
        replays += cudagraphs.stats().replays
        if message.startswith(UsageError.__name__):
            refused += 1
        elif message:
            disagreeing += 1
            minimal = _minimized(case, simpler, lambda simpler_case: _signature(message_of(simpler_case)))
            print(f"DIFFERENT: seed {seed}, {describe(minimal)}\n  {message[:600]}\n  {message_of(minimal)[:600]}", flush=True)
    print(f"{options.programs} {noun}, {refused} of them refused, {replays} replays, {disagreeing} different")
    return int(disagreeing > 0)


def _signature(message: str) -> tuple[str, ...]:
    """Return the part of a message that stays the same when the program is simplified."""
    words = message.split()[2:] if message.startswith("call ") else message.split()
    return (*words[:1], *(word for word in ("nan", "memory", "raised", "torch.") if word in message))


def _minimized(case: Case, simpler: Callable[[Case], Iterator[Case]], signature_of: Callable[[Case], Any]) -> Case:
    """Simplify a case as long as a simpler one disagrees in the same way."""
    signature = signature_of(case)
    while True:
        candidates = (candidate for candidate in simpler(case) if signature_of(candidate) == signature)
        if (minimal := next(candidates, None)) is None:
            return case
        case = minimal


def without(values: tuple[Any, ...], index: int) -> tuple[Any, ...]:
    return values[:index] + values[index + 1 :]
