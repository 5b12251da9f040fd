"""Calls of which the benchmarks measure for how long they keep the CPU: one for each way to record.

Without CUDA the emulator replays.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

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


def rows(cudagraphs: Any) -> dict[str, Call]:
    """Return the calls, for the module `dynx.cudagraphs` of one version; call each a few times before it is measured."""
    x = torch.randn(8, 64, device=DEVICE)
    calls: dict[str, Call] = {}

    def config(**options: object) -> Any:
        return cudagraphs.Config(runtime="cuda" if DEVICE == "cuda" else "emulator", **options)

    def compiled(model: nn.Module, **options: object) -> Callable[..., torch.Tensor]:
        return torch.compile(model, backend=cudagraphs.backend(config(**options)))

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
