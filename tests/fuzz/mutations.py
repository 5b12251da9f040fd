"""Changes models after they were compiled, one thing at a time: the next call has to recompile or to return what eager returns.

Does so with torch's guards and with dict tags, and lists the changes that each misses. A setting that `guards.profile` offers
may only miss the kinds of change that it documents.

python tests/fuzz/mutations.py [--seed 0] [--changes 500]
Exits with 1 if a change of another kind is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import random
import sys
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

sys.path.insert(0, os.path.dirname(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))

import changes
import models
import torch
from support import untimed_guards

import dynx
from dynx.guards._cache.owner import cache_owner
from dynx.guards._cost.dict_tags import Marking

SETTINGS = ("in use", "dict tags")
MISSED_BY_TORCH = {"hook", "class attribute"}
MAY_MISS = {"in use": MISSED_BY_TORCH, "dict tags": MISSED_BY_TORCH | {"class", "cell", "default", "code"}}


def every_change(seed: int) -> list[tuple[str, int, changes.Change]]:
    """List the changes of generated models and of models of transformers, in a fixed order."""
    own = [(maker, at) for at in (seed, seed + 1) for maker in ("generated", "plain")]
    makers = (*own, ("gpt2", seed), ("bert", seed))
    return [(maker, at, change) for maker, at in makers for change in changes.changes(*getattr(models, maker)(at))]


def chosen_of(every: list[tuple[str, int, changes.Change]], count: int, seed: int) -> list[tuple[str, int, changes.Change]]:
    """Choose changes of every kind in turn; few are of transformers models, which take longer to compile."""
    rng = random.Random(seed)
    kinds: dict[tuple[bool, str], list[tuple[str, int, changes.Change]]] = {}
    for maker, at, change in rng.sample(every, len(every)):
        kinds.setdefault((maker in ("generated", "plain"), change.kind), []).append((maker, at, change))
    own, library = ([kinds[key] for key in sorted(kinds) if key[0] is is_own] for is_own in (True, False))
    chosen: list[tuple[str, int, changes.Change]] = []
    while len(chosen) < min(count, len(every)):
        chosen += [kind.pop() for kind in own if kind]
        chosen += [kind.pop() for kind in rng.sample(library, 2) if kind]
    return chosen[:count]


def is_missed(maker: str, seed: int, change: changes.Change, setting: str) -> bool:
    """Return whether a compiled model, after a change, neither recompiles nor returns what eager returns."""
    torch._dynamo.reset()
    models.GLOBAL = 1.5
    model, args = getattr(models, maker)(seed)
    compiled = torch.compile(model, backend="eager")
    compiled(*args)
    with Marking(cache_owner(compiled)) if setting == "dict tags" else contextlib.nullcontext():
        for _ in range(2):
            compiled(*args)
        assert dynx.would_recompile(compiled, *args).hit
        new_args = list(args)
        undo = change.make(model, new_args)
        try:
            with dynx.watch() as w:
                actual = outcome(compiled, new_args)
            return not w.recompiles and not is_same(actual, outcome(model, new_args))
        finally:
            if undo is not None:
                undo()


def missed_of(part: int, parts: int, count: int, seed: int) -> list[tuple[str, str, str, str]]:
    """Try every `parts`-th change under every setting; return setting, model, kind and name of each missed change."""
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    untimed_guards.install()
    chosen = chosen_of(every_change(seed), count, seed)[part::parts]
    return [
        (setting, maker, change.kind, change.name)
        for maker, at, change in chosen
        for setting in SETTINGS
        if is_missed(maker, at, change, setting)
    ]


def outcome(run, args):
    """Return dtype, requires_grad and values of all outputs, or `"error"`."""
    torch.manual_seed(0)
    try:
        out = run(*args)
    except Exception:  # noqa: BLE001 - the messages of eager and traced operators differ
        return "error"
    tensors = [out] if isinstance(out, torch.Tensor) else [value for value in out.values() if isinstance(value, torch.Tensor)]
    return [(tensor.dtype, tensor.requires_grad, tensor.detach().clone()) for tensor in tensors]


def is_same(actual, expected) -> bool:
    if isinstance(actual, str) or isinstance(expected, str):
        return actual == expected
    pairs = zip(actual, expected, strict=True)
    return all(a[:2] == b[:2] and a[2].shape == b[2].shape and torch.allclose(a[2], b[2], equal_nan=True) for a, b in pairs)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--changes", type=int, default=500)
    options = parser.parse_args()
    every = every_change(options.seed)
    kinds = Counter(change.kind for _, _, change in chosen_of(every, options.changes, options.seed))
    print(f"{kinds.total()} of {len(every)} changes, {len(kinds)} kinds:", ", ".join(sorted(kinds)), flush=True)
    processes = os.cpu_count() or 1
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(missed_of, part, processes, options.changes, options.seed) for part in range(processes)]
        missed = [row for job in jobs for row in job.result()]
    failed = False
    for setting in SETTINGS:
        counts = Counter(kind for which, _, kind, _ in missed if which == setting)
        words = ", ".join(f"{count} of {kinds[kind]} {kind}" for kind, count in counts.items()) or "none"
        print(f"{setting}: {kinds.total() - counts.total()} detected, missed: {words}")
        for which, maker, kind, name in missed:
            if which == setting and kind not in MAY_MISS[setting]:
                failed = True
                print(f"  {maker}: {kind}, {name}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
