"""What a call costs: through torch's CUDA graph paths, through ours, and as a bare replay; all in one run on one GPU.

All rows of a model are measured in turn, in rounds, so that a moment in which the machine is slow falls on all of them.
`host` is the time for which a call keeps the CPU, `wall` that until the GPU is done, per call; medians in microseconds. Bounds
were set on a machine where mode="reduce-overhead" takes 55 microseconds for the first model, and are scaled by what it takes
here.

python benchmarks/cudagraphs.py [--out benchmarks/results/cudagraphs-h200.json] [--rounds 30]
Exits with 1 when a bound is missed.
"""

from __future__ import annotations

import argparse
import copy
import datetime
import itertools
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from torch import nn

from dynx import cudagraphs

CALLS = 20
REFERENCE = "torch reduce-overhead", 55.0
TORCH = {"torch cudagraphs": {"backend": "cudagraphs"}, "torch reduce-overhead": {"mode": "reduce-overhead"}}
NO_GUARDS = {"guard_filter_fn": torch.compiler.skip_all_guards_unsafe}


@dataclass
class Row:
    """One way to call a model; times in microseconds."""

    model: str
    name: str
    host: float
    wall: float
    bound: float | None  # of host, on the reference machine
    megabytes: float | None = None  # of GPU memory that compiling took


class Loss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x).float().square().mean()


class Table:
    """The rows of one model."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.calls: dict[str, Callable[[], object]] = {}
        self.bounds: dict[str, float] = {}

    def add(self, name: str, call: Callable[[], object], bound: float | None = None) -> None:
        for _ in range(4):  # compile and record
            call()
        self.calls[name] = call
        if bound is not None:
            self.bounds[name] = bound

    def measured(self, rounds: int) -> list[Row]:
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in self.calls}
        for _ in range(rounds):
            for name, call in self.calls.items():
                times[name].append(host_and_wall(call))
        medians = {name: [statistics.median(each) for each in zip(*found, strict=True)] for name, found in times.items()}
        return [Row(self.title, name, *found, self.bounds.get(name)) for name, found in medians.items()]


def host_and_wall(call: Callable[[], object]) -> tuple[float, float]:
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    kept = time.perf_counter()
    torch.cuda.synchronize()
    return (kept - start) / CALLS * 1e6, (time.perf_counter() - start) / CALLS * 1e6


def compiled(model, **how):
    """Compile a function of its own, so that every row has a cache of its own."""

    def call(x):
        return model(x)

    call.__code__ = call.__code__.replace(co_name=f"call_{len(_named)}")
    _named.append(call)
    return torch.compile(call, **how)


_named: list[Callable[..., object]] = []


def ours(**options):
    return {"backend": cudagraphs.backend(cudagraphs.Config(**options))}


def calling(run, x):
    return lambda: run(x)


def alternating(run, x):
    """Call with two tensors in turn, so that where an input lies changes with every call."""
    turns = itertools.cycle([x, x.clone()])
    return lambda: run(next(turns))


def graph_of(function):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        function()
    return graph


def forward(title, model, x):
    table = Table(title)
    model.eval()
    table.add("eager", calling(model, x))
    for name, how in TORCH.items():
        table.add(name, calling(compiled(model, **how), x))
    table.add("dynx, clone", calling(compiled(model, **ours()), x), 32)
    table.add("dynx, alias", calling(compiled(model, **ours(outputs="alias")), x), 25)
    bare = compiled(model, **ours(outputs="alias"), options=NO_GUARDS)
    table.add("dynx, alias, guards off", calling(bare, x), 18)
    static = cudagraphs.Config(outputs="static")
    table.add("dynx.fast_path, checked", alternating(cudagraphs.fast_path(model, x, config=static), x), 8)
    table.add("dynx.fast_path, frozen", alternating(cudagraphs.fast_path(model, x, frozen=True, config=static), x), 5)
    held = x.clone()
    graph = graph_of(lambda: model(held))
    table.add("copy and replay by hand", lambda: (held.copy_(x), graph.replay()))
    table.add("replay", graph.replay)
    return table


def training(title, model, x):
    """A step: gradients set to nothing, forward, backward."""
    table = Table(title)
    loss = Loss(model).train()
    parameters = list(loss.parameters())

    def stepping(run):
        def step():
            for each in parameters:
                each.grad = None
            run(x).backward()

        return step

    table.add("eager", stepping(loss))
    for name, how in TORCH.items():
        table.add(name, stepping(compiled(loss, **how)))
    table.add("dynx, clone", stepping(compiled(loss, **ours())))
    table.add("dynx, alias", stepping(compiled(loss, **ours(outputs="alias"))))
    for name, frozen in (("dynx.train_step, checked", False), ("dynx.train_step, frozen", True)):
        mine = copy.deepcopy(loss)
        step = cudagraphs.train_step(mine, mine.parameters(), frozen=frozen, config=cudagraphs.Config(outputs="static"))
        table.add(name, alternating(step, x), 6 if frozen else None)
    held, other = x.clone(), copy.deepcopy(loss)  # whose gradients no other stream has seen
    for each in other.parameters():
        each.grad = torch.zeros_like(each)

    def whole():
        torch._foreach_zero_([each.grad for each in other.parameters()])
        other(held).backward()

    table.add("replay of the whole step", graph_of(whole).replay)
    return table


def a_gigabyte_of_parameters(rounds):
    """Every way in turn, with what it adds to the memory: torch's "cudagraphs" copies all parameters on every call."""
    ways = {"eager": None, **TORCH, "dynx, clone": ours()}
    title, rows = "32 x Linear(4096), 1 GB", []
    for name, how in ways.items():
        torch._dynamo.reset()
        cudagraphs.reset()
        torch.cuda.empty_cache()
        model = nn.Sequential(*(nn.Linear(4096, 4096, device="cuda", dtype=torch.half) for _ in range(32))).eval()
        x = torch.randn(16, 4096, device="cuda", dtype=torch.half)
        model(x), torch.cuda.synchronize()
        before = torch.cuda.memory_reserved()
        table = Table(title)
        table.add(name, calling(model if how is None else compiled(model, **how), x))
        (row,) = table.measured(rounds)
        row.megabytes = (torch.cuda.memory_reserved() - before) / 2**20
        rows.append(row)
        del table, model
    return rows


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--out")
    options.add_argument("--rounds", type=int, default=30)
    given = options.parse_args()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(20))).half().cuda()
    x = torch.randn(16, 256, device="cuda", dtype=torch.half)
    with torch.no_grad():
        rows = forward("20 x Linear(256), forward", model, x).measured(given.rounds)
        rows += a_gigabyte_of_parameters(given.rounds)
    rows += training("20 x Linear(256), training", model, x).measured(given.rounds)
    about = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "date": datetime.date.today().isoformat(),
    }
    slower = next(each.host for each in rows if each.name == REFERENCE[0]) / REFERENCE[1]
    print(", ".join(about.values()), f"; {slower:.2f} times the reference", sep="")
    missed = [row for row in rows if row.bound is not None and row.host > row.bound * slower]
    for number, row in enumerate(rows):
        if not number or rows[number - 1].model != row.model:
            print(f"\n{row.model:32} {'host us':>10} {'wall us':>10}" + ("  memory added" if row.megabytes is not None else ""))
        verdict = "" if row.bound is None else f"  bound {row.bound * slower:.1f}  {'MISSED' if row in missed else 'ok'}"
        memory = "" if row.megabytes is None else f"  {row.megabytes:9.1f} MB"
        print(f"  {row.name:30} {row.host:10.1f} {row.wall:10.1f}{memory}{verdict}")
    if given.out:
        with open(given.out, "w") as file:
            json.dump({**about, "times_the_reference": slower, "rows": [asdict(row) for row in rows]}, file, indent=1)
            file.write("\n")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
