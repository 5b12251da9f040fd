"""For how long a call keeps the CPU, for each way to record: one JSON object of medians in microseconds, for `against.py`.

`replay` is a bare replay of the first model, measured in turn with all rows. Without CUDA the emulator replays.

python benchmarks/host_calls.py [--rounds 40]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable

import torch
from torch import nn

from dynx import cudagraphs

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CALLS = 20
Call = Callable[[], object]


def mlp(layers: int = 4) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(layer for _ in range(layers) for layer in (nn.Linear(64, 64), nn.ReLU()))).to(DEVICE)


class Loss(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x).square().mean()


def config(**options: object) -> cudagraphs.Config:
    return cudagraphs.Config(runtime="cuda" if DEVICE == "cuda" else "emulator", **options)  # type: ignore[arg-type]


def compiled(model: nn.Module, **options: object) -> Callable[..., torch.Tensor]:
    return torch.compile(model, backend=cudagraphs.backend(config(**options)))


@torch.no_grad()
def bare_replay(model: nn.Module, x: torch.Tensor) -> Call:
    if DEVICE == "cpu":
        return lambda: model(x)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            model(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(x)
    return graph.replay


def rows() -> dict[str, Call]:
    x = torch.randn(8, 64, device=DEVICE)
    calls: dict[str, Call] = {"replay": bare_replay(mlp(), x)}

    def add(name: str, run: Callable[..., torch.Tensor]) -> None:
        calls[name] = torch.no_grad()(lambda: run(x))

    def add_step(name: str, run: Callable[..., torch.Tensor]) -> None:
        calls[name] = lambda: run(x).backward()

    for inputs in ("copy", "memcpy_node", "patch", "auto"):
        add(f"fast_path, {inputs}", cudagraphs.fast_path(mlp(), config=config(inputs=inputs)))
        add(f"backend, {inputs}", compiled(mlp(), inputs=inputs))
    add("fast_path, 40 parameters", cudagraphs.fast_path(mlp(20), config=config()))
    add("fast_path, frozen", cudagraphs.fast_path(mlp(), x, unsafe_skip_checks=True, config=config()))
    add_step("graphed, a step", cudagraphs.graphed(Loss(mlp()), (x,), config=config()))
    add_step("backend, a step", compiled(Loss(mlp())))
    add_step("backend, a step in place", compiled(Loss(mlp()), gradients="in_place"))
    loss = Loss(mlp())
    optimizer = torch.optim.SGD(loss.parameters(), lr=1e-3)
    step = cudagraphs.train_step(loss, loss.parameters(), optimizer=optimizer, config=config())
    calls["train_step"] = lambda: step(x)
    return calls


def microseconds(call: Call) -> float:
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - start) / CALLS * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    warnings.simplefilter("ignore")
    calls = rows()
    for call in calls.values():
        for _ in range(6):  # compile and record
            call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(microseconds(call))
    print(json.dumps({name: statistics.median(samples) for name, samples in times.items()}))


if __name__ == "__main__":
    main()
