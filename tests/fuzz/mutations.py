"""Changes models after they were compiled, one thing at a time: every change must recompile or give eager's answer.

Does so with the guards as torch makes them and with dict tags, and lists what each does not notice. A setting that
`guards.profile` offers may miss only what it says.

python tests/fuzz/mutations.py [--seed 0] [--changes 500]
Exits 1 if one misses a change of another kind than those it is known to miss.
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

import dynx
from dynx.guards._cache.owner import cache_owner
from dynx.guards._cost.dict_tags import Marking

SETTINGS = ("in use", "dict tags")
BY_DEFAULT = {"hook", "of a class"}
NOT_NOTICED = {"in use": BY_DEFAULT, "dict tags": BY_DEFAULT | {"class", "cell", "default", "code"}}


def every_change(seed: int) -> list[tuple[str, int, changes.Change]]:
    """List the changes of generated models and of models of transformers, in a fixed order."""
    own = [(maker, at) for at in (seed, seed + 1) for maker in ("generated", "plain")]
    makers = (*own, ("gpt2", seed), ("bert", seed))
    return [(maker, at, each) for maker, at in makers for each in changes.changes(*getattr(models, maker)(at))]


def chosen_of(every: list[tuple[str, int, changes.Change]], count: int, seed: int) -> list[tuple[str, int, changes.Change]]:
    """Choose from every kind in turn, and one in ten of a model of transformers, whose compilation takes longer."""
    rng = random.Random(seed)
    kinds: dict[tuple[bool, str], list[tuple[str, int, changes.Change]]] = {}
    for each in rng.sample(every, len(every)):
        kinds.setdefault((each[0] in ("generated", "plain"), each[2].kind), []).append(each)
    own, library = ([kinds[key] for key in sorted(kinds) if key[0] is mine] for mine in (True, False))
    found: list[tuple[str, int, changes.Change]] = []
    while len(found) < min(count, len(every)):
        found += [kind.pop() for kind in own if kind]
        found += [kind.pop() for kind in rng.sample(library, 2) if kind]
    return found[:count]


def is_missed(maker: str, seed: int, change: changes.Change, setting: str) -> bool:
    """Tell whether a compiled model neither compiles again after a change nor gives eager's answer."""
    torch._dynamo.reset()
    models.GLOBAL = 1.5
    model, args = getattr(models, maker)(seed)
    compiled = torch.compile(model, backend="eager")
    compiled(*args)
    with Marking(cache_owner(compiled)) if setting == "dict tags" else contextlib.nullcontext():
        for _ in range(2):
            compiled(*args)
        assert dynx.would_recompile(compiled, *args).hit
        given = list(args)
        back = change.make(model, given)
        try:
            with dynx.guards.recompiles() as log:
                found = answer(compiled, given)
            return not log and not same(found, answer(model, given))
        finally:
            if back is not None:
                back()


def missed_of(part: int, parts: int, count: int, seed: int) -> list[tuple[str, str, str, str]]:
    """Try every `parts`-th change under every setting, in a process of its own: setting, model, kind and name of the missed."""
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    mine = chosen_of(every_change(seed), count, seed)[part::parts]
    return [
        (setting, maker, each.kind, each.name)
        for maker, at, each in mine
        for setting in SETTINGS
        if is_missed(maker, at, each, setting)
    ]


def answer(run, args):
    torch.manual_seed(0)
    try:
        out = run(*args)
    except Exception:  # noqa: BLE001 - torch words the error of a traced operation in its own way
        return "error"
    tensors = [out] if isinstance(out, torch.Tensor) else [each for each in out.values() if isinstance(each, torch.Tensor)]
    return [(each.dtype, each.requires_grad, each.detach().clone()) for each in tensors]


def same(one, other) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    pairs = zip(one, other, strict=True)
    return all(a[:2] == b[:2] and a[2].shape == b[2].shape and torch.allclose(a[2], b[2], equal_nan=True) for a, b in pairs)


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--changes", type=int, default=500)
    given = options.parse_args()
    every = every_change(given.seed)
    kinds = Counter(change.kind for _, _, change in chosen_of(every, given.changes, given.seed))
    print(f"{kinds.total()} of {len(every)} changes, {len(kinds)} kinds:", ", ".join(sorted(kinds)), flush=True)
    processes = os.cpu_count() or 1
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(missed_of, part, processes, given.changes, given.seed) for part in range(processes)]
        missed = [each for job in jobs for each in job.result()]
    failed = False
    for setting in SETTINGS:
        told = Counter(kind for which, _, kind, _ in missed if which == setting)
        words = ", ".join(f"{count} of {kinds[kind]} {kind}" for kind, count in told.items()) or "nothing"
        print(f"{setting}: {kinds.total() - told.total()} noticed, not noticed: {words}")
        for which, maker, kind, name in missed:
            if which == setting and kind not in NOT_NOTICED[setting]:
                failed = True
                print(f"  {maker}: {kind}, {name}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
