"""What a call costs: through torch's CUDA graph paths, through ours, and as a bare replay; all in one run on one GPU.

All rows of a model are measured in turn, in rounds, so that a moment in which the machine is slow falls on all of them.
`host` is the time for which a call keeps the CPU, `wall` that until the GPU is done, per call; medians in microseconds. Bounds
of host time were set on a machine where mode="reduce-overhead" takes 55 microseconds for the first model, and are scaled by
what it takes here, measured in turn with the rows of each model; those of wall time are relative to a bare replay of the same
work.

python benchmarks/cudagraphs.py [--out benchmarks/results/cudagraphs-h200.json] [--rounds 30] [--only mlp-forward …]
Exits with 1 when a bound is missed.
"""

from __future__ import annotations

import argparse
import copy
import datetime
import functools
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
from dynx.errors import DynxWarning

CALLS = 50  # in a row, for wall time: the GPU waits for the first of them, and that is to weigh little
HOST_CALLS = 20  # the first of them: with more under way, large graphs fill the queue and CUDA has the CPU wait
REFERENCE = 55.0  # microseconds
TORCH = {"torch cudagraphs": {"backend": "cudagraphs"}, "torch reduce-overhead": {"mode": "reduce-overhead"}}
NO_GUARDS = {"guard_filter_fn": torch.compiler.skip_all_guards_unsafe}


@dataclass
class Row:
    """One way to call a model; times in microseconds."""

    model: str
    name: str
    host: float
    wall: float
    slower: float | None  # how many times its time on the reference machine the reference took meanwhile
    host_bound: float | None = None  # on the reference machine
    wall_bound: float | None = None  # times the wall time of a bare replay
    host_over: float | None = None  # microseconds over the host time of a bare replay, on the reference machine
    wall_over: float | None = None  # microseconds over its wall time
    megabytes: float | None = None  # of GPU memory that compiling took


class Loss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x).float().square().mean()


class Table:
    """The rows of one model; the last is the bare replay that others are compared with."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.calls: dict[str, Callable[[], object]] = {}
        self.bounds: dict[str, dict[str, float]] = {}
        self.held: object = None

    def add(
        self, name: str, call: Callable[[], object], *, host: float | None = None, wall: float | None = None, **over: float
    ) -> None:
        for _ in range(4):  # compile and record
            call()
        self.calls[name] = call
        self.bounds[name] = {"host_bound": host, "wall_bound": wall, **over}

    def measured(self, rounds: int) -> list[Row]:
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in self.calls}
        is_scaled = any(each.get("host_bound") or each.get("host_over") for each in self.bounds.values())
        beside = []
        for _ in range(rounds):
            for name, call in self.calls.items():
                times[name].append(host_and_wall(call))
            if is_scaled:  # and not where memory is measured
                beside.append(host_and_wall(reference())[0])
        slower = statistics.median(beside) / REFERENCE if beside else None
        medians = {name: [statistics.median(each) for each in zip(*found, strict=True)] for name, found in times.items()}
        return [Row(self.title, name, *found, slower, **self.bounds[name]) for name, found in medians.items()]


def host_and_wall(call: Callable[[], object]) -> tuple[float, float]:
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(HOST_CALLS):
        call()
    kept = time.perf_counter()
    for _ in range(CALLS - HOST_CALLS):
        call()
    torch.cuda.synchronize()
    return (kept - start) / HOST_CALLS * 1e6, (time.perf_counter() - start) / CALLS * 1e6


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


def forward(title, model, x, *, hosts=(None,) * 5, wall=None, inner="eager"):
    """Forward passes, with bounds of host time for each of our ways, and one of wall time for all."""
    table, hosts = Table(title), iter(hosts)
    model.eval()
    table.add("eager", calling(model, x))
    for name, how in TORCH.items():
        table.add(name, calling(compiled(model, **how), x))
    if inner == "inductor":
        table.add("torch inductor", calling(compiled(model), x))
    table.add("dynx, clone", calling(compiled(model, **ours(inner=inner)), x), host=next(hosts), wall=wall)
    table.add("dynx, alias", calling(compiled(model, **ours(outputs="alias", inner=inner)), x), host=next(hosts), wall=wall)
    bare = compiled(model, **ours(outputs="alias", inner=inner), options=NO_GUARDS)
    table.add("dynx, alias, guards off", calling(bare, x), host=next(hosts), wall=wall)
    static = cudagraphs.Config(outputs="static", inner=inner)
    for name, frozen in (("dynx.fast_path, checked", False), ("dynx.fast_path, frozen", True)):
        run = cudagraphs.fast_path(model, x, unsafe_skip_checks=frozen, config=static)
        table.add(name, alternating(run, x), host=next(hosts), wall=wall)
    held, raw = x.clone(), model if inner == "eager" else compiled(model)
    graph = graph_of(lambda: raw(held))
    table.add("copy and replay by hand", lambda: (held.copy_(x), graph.replay()))
    table.add("replay", graph.replay)
    return table


def training(title, loss, x, *, host=None, wall=None, in_place_host=None, in_place_wall=None, inner="eager"):
    """A step: gradients set to nothing, forward, backward. Bounds are those of a recorded step."""
    table = Table(title)
    loss.train()

    def stepping(run, model=loss):
        parameters = list(model.parameters())

        def step():
            for each in parameters:
                each.grad = None
            run(x).backward()

        return step

    table.add("eager", stepping(loss))
    for name, how in TORCH.items():
        table.add(name, stepping(compiled(loss, **how)))
    if inner == "inductor":
        table.add("torch inductor", stepping(compiled(loss)))
    table.add("dynx, clone", stepping(compiled(loss, **ours(inner=inner))))
    table.add("dynx, alias", stepping(compiled(loss, **ours(outputs="alias", inner=inner))))
    in_place = compiled(mine := copy.deepcopy(loss), **ours(gradients="in_place", inner=inner))
    table.add("dynx, gradients in place", stepping(in_place, mine), host=in_place_host, wall=in_place_wall)
    for name, graph in (
        ("torch.cuda.make_graphed_callables", torch.cuda.make_graphed_callables),
        ("dynx.graphed", cudagraphs.graphed),
        ("dynx.graphed, in place", functools.partial(cudagraphs.graphed, gradients="in_place")),
    ):
        if inner == "eager":
            mine = copy.deepcopy(loss)
            table.add(name, stepping(graph(mine, (x,)), mine))
    static = cudagraphs.Config(outputs="static", inner=inner)
    for name, frozen in (("dynx.train_step, checked", False), ("dynx.train_step, frozen", True)):
        mine = copy.deepcopy(loss)
        step = cudagraphs.train_step(mine, mine.parameters(), unsafe_skip_checks=frozen, config=static)
        table.add(name, alternating(step, x), host=host if frozen else None, wall=wall)
    held, other = x.clone(), copy.deepcopy(loss)  # whose gradients no other stream has seen
    raw = other if inner == "eager" else compiled(other)

    def whole():
        for each in other.parameters():
            each.grad = None
        raw(held).backward()

    table.held = held, other  # a CUDA graph keeps no memory alive
    table.add("replay of the whole step", graph_of(whole).replay)
    return table


def patched(title, model, x, rounds, inner="eager"):
    """Fast paths that get their inputs in each of the ways there are."""
    table = Table(title)
    model.eval()
    for how in ("copy", "memcpy_node", "patch"):
        config = cudagraphs.Config(inputs=how, outputs="static", inner=inner)
        run = cudagraphs.fast_path(model, x, unsafe_skip_checks=True, config=config)
        over = {"host_over": 2.5, "wall_over": 1.0} if how == "patch" else {}
        table.add(f"dynx.fast_path, {how}", alternating(run, x), **over)
    config = cudagraphs.Config(params="patch", outputs="static", inner=inner)
    table.add("dynx.fast_path, params told", alternating(cudagraphs.fast_path(model, x, config=config), x))
    if inner == "eager":
        count = len(list(model.parameters()))
        table.add(f"dynx.fast_path, {count} params swapped", swapping(model, x), host=45 if count <= 40 else None)
    held, raw = x.clone(), model if inner == "eager" else compiled(model)
    table.held = held
    table.add("replay", graph_of(lambda: raw(held)).replay)
    return table.measured(rounds)


def swapping(model, x):
    """Call a model with one set of parameters and another in turn, without the time to put them into the model."""
    names = [name for name, _ in model.named_parameters()]
    sets = [[each.detach().clone() for each in model.parameters()] for _ in range(2)]

    def call(*given):
        return torch.func.functional_call(model, dict(zip(names, given, strict=False)), given[-1:])

    config = cudagraphs.Config(inputs="patch", outputs="static")
    run = cudagraphs.fast_path(call, *sets[0], x, unsafe_skip_checks=True, config=config)
    turns = itertools.cycle(sets)
    return lambda: run(*next(turns), x)


def sixteen_inputs(rounds):
    table = Table("16 inputs")
    x = [torch.randn(4096, device="cuda") for _ in range(16)]
    other = [each.clone() for each in x]

    def add_all(*given):
        total = given[0] * 2
        for each in given[1:]:
            total = total + each
        return total

    for how in ("copy", "memcpy_node", "patch", "auto"):
        config = cudagraphs.Config(inputs=how, outputs="static")
        run = cudagraphs.fast_path(add_all, *x, unsafe_skip_checks=True, config=config)
        turns = itertools.cycle([x, other])
        table.add(f"dynx.fast_path, {how}", lambda run=run, turns=turns: run(*next(turns)))
    table.held = x
    table.add("replay", graph_of(lambda: add_all(*x)).replay)
    return table.measured(rounds)


class Block(nn.Module):
    """A transformer's layer."""

    def __init__(self, width=256, heads=8):
        super().__init__()
        self.heads, self.first, self.second = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in self.qkv(self.first(x)).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.second(x))


class Gpt(nn.Module):
    """Four layers over 64 tokens of 512."""

    def __init__(self):
        super().__init__()
        self.embed, self.position = nn.Embedding(512, 256), nn.Parameter(torch.randn(64, 256) * 0.02)
        self.layers, self.out = nn.Sequential(*(Block() for _ in range(4)), nn.LayerNorm(256)), nn.Linear(256, 512, bias=False)

    def forward(self, tokens):
        return self.out(self.layers(self.embed(tokens) + self.position))


def gpt2():
    """Make GPT-2 124M of transformers, with random weights."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    model = GPT2LMHeadModel(config).to("cuda", torch.bfloat16)

    class Logits(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, tokens):
            return self.model(tokens).logits

    return Logits()


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


def mlp():
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(20))).half().cuda()
    return model, torch.randn(16, 256, device="cuda", dtype=torch.half)


@functools.cache
def reference():
    """Give the call that tells how fast the machine is."""
    model, x = mlp()
    call = torch.no_grad()(calling(compiled(model, **TORCH["torch reduce-overhead"]), x))
    for _ in range(4):
        call()
    return call


def gpt():
    torch.manual_seed(0)
    return Gpt().half().cuda(), torch.randint(0, 512, (4, 64), device="cuda")


def tokens(count):
    return torch.randint(0, 50257, (1, count), device="cuda")


@torch.no_grad()
def mlp_forward(rounds):
    return forward("20 x Linear(256), forward", *mlp(), hosts=(32, 25, 18, 8, 5)).measured(rounds)


def mlp_training(rounds):
    model, x = mlp()
    return training(
        "20 x Linear(256), training", Loss(model), x, host=6, wall=1.03, in_place_host=100, in_place_wall=1.1
    ).measured(rounds)


@torch.no_grad()
def gpt_forward(rounds):
    return forward("GPT of 4 layers, forward", *gpt(), wall=1.05).measured(rounds)


def gpt_training(rounds):
    model, x = gpt()
    return training("GPT of 4 layers, training", Loss(model), x, wall=1.05).measured(rounds)


@torch.no_grad()
def gpt2_forward(rounds):
    return forward("GPT-2 124M, forward b1 t16", gpt2(), tokens(16), wall=1.05, inner="inductor").measured(rounds)


def gpt2_training(rounds):
    loss = Loss(gpt2())
    return training("GPT-2 124M, training b1 t64", loss, tokens(64), host=50, wall=1.03, inner="inductor").measured(rounds)


@torch.no_grad()
def patching(rounds):
    model, x = mlp()
    rows = patched("20 x Linear(256), patched", model, x, rounds)
    layers = [each for _ in range(8) for each in (nn.Linear(256, 256), nn.GELU(), nn.LayerNorm(256))]
    mixed = nn.Sequential(*layers).half().cuda()
    rows += patched("Linear, GELU, LayerNorm", mixed, x, rounds)
    rows += patched("the same by inductor", mixed, x, rounds, "inductor")
    tokens = torch.randn(4, 64, 256, device="cuda", dtype=torch.half)
    attention = nn.Sequential(*(Block() for _ in range(4))).half().cuda()
    rows += patched("attention", attention, tokens, rounds)
    rows += patched("attention by inductor", attention, tokens, rounds, "inductor")
    layers = [each for _ in range(4) for each in (nn.Conv2d(32, 32, 3, padding=1), nn.ReLU())]
    images = torch.randn(4, 32, 32, 32, device="cuda", dtype=torch.half)
    rows += patched("convolutions", nn.Sequential(*layers).half().cuda(), images, rounds)
    return rows + sixteen_inputs(rounds)


TABLES = {
    "mlp-forward": mlp_forward,
    "mlp-training": mlp_training,
    "gigabyte": torch.no_grad()(a_gigabyte_of_parameters),
    "gpt-forward": gpt_forward,
    "gpt-training": gpt_training,
    "gpt2-forward": gpt2_forward,
    "gpt2-training": gpt2_training,
    "patching": patching,
}


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--out")
    options.add_argument("--rounds", type=int, default=30)
    options.add_argument("--only", nargs="*", choices=TABLES)
    given = options.parse_args()
    warnings.simplefilter("ignore")
    warnings.simplefilter("always", DynxWarning)  # what runs uncaptured is no row of ours
    rows = [row for name in given.only or TABLES for row in TABLES[name](given.rounds)]
    about = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "date": datetime.date.today().isoformat(),
    }
    replays = {row.model: row for row in rows}  # the last of each
    print(", ".join(about.values()))
    missed = []
    for number, row in enumerate(rows):
        if not number or rows[number - 1].model != row.model:
            memory = "  memory added" if row.megabytes is not None else ""
            scale = "" if row.slower is None else f"  ({row.slower:.2f} times the reference)"
            print(f"\n{row.model:32} {'host us':>10} {'wall us':>10}{memory}{scale}")
        verdict = ""
        for kind, found, bound in (
            ("host", row.host, row.host_bound and row.host_bound * row.slower),
            ("wall", row.wall, row.wall_bound and row.wall_bound * replays[row.model].wall),
            ("host", row.host, row.host_over and row.host_over * row.slower + replays[row.model].host),
            ("wall", row.wall, row.wall_over and row.wall_over + replays[row.model].wall),
        ):
            if bound is not None:
                verdict += f"  {kind} bound {bound:.1f} {'MISSED' if found > bound else 'ok'}"
                missed += [row] if found > bound else []
        memory = "" if row.megabytes is None else f"  {row.megabytes:9.1f} MB"
        print(f"  {row.name:30} {row.host:10.1f} {row.wall:10.1f}{memory}{verdict}")
    if given.out:
        with open(given.out, "w") as file:
            json.dump({**about, "rows": [asdict(row) for row in rows]}, file, indent=1)
            file.write("\n")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
