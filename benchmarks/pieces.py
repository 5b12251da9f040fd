"""Graphs of inductor with operators that cannot be captured: split before inductor, as dynx does, or by its `graph_partition`.

`kernels` are those that inductor generated: more means that fewer operators were fused. Times are wall times of a forward pass
without gradients, relative to plain inductor, all rows of a model in turn. Bound: dynx takes at most 1.05 times as long as
mode="reduce-overhead" with `graph_partition`.

python benchmarks/pieces.py [--rounds 30] [--out benchmarks/results/pieces-h100.json]
Exits with 1 when a bound is missed. Needs a GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._inductor import config as inductor_config
from torch._inductor import metrics

from dynx import cudagraphs

CALLS = 30
BOUND = 1.05


@torch.library.custom_op("dynx_benchmarks::outside", mutates_args=(), tags=(torch.Tag.cudagraph_unsafe,))
def outside(x: torch.Tensor) -> torch.Tensor:
    """An operator that reads a value on the CPU, as routers and samplers do."""
    return x * (2 if x.flatten()[0].item() > -1e9 else 1)


@outside.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Perceptrons(nn.Module):
    """The operator between layers: nothing could be fused across it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.LayerNorm(256)) for _ in range(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, layer in enumerate(self.layers):
            x = layer(x)
            if number % 2:
                x = outside(x).tanh() * x
        return x


class Branches(nn.Module):
    """Chains that are independent of the operator begin before it and end after it: inductor may fuse them as a whole."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chains = [x.sin().cos() + number for number in range(4)]
        y = outside(x.exp())
        return sum(chain.tanh().sigmoid() * y for chain in chains)  # type: ignore[return-value]


class Routed(nn.Module):
    """Attention whose scores the operator scales."""

    def __init__(self, width: int = 256, heads: int = 8) -> None:
        super().__init__()
        self.heads, self.qkv, self.out, self.norm = (
            heads,
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
            nn.LayerNorm(width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in self.qkv(self.norm(x)).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(outside(mixed.transpose(1, 2).flatten(2)).relu()).sigmoid()


def ways() -> dict[str, tuple[dict[str, Any], AbstractContextManager[None]]]:
    return {
        "inductor, uncaptured": ({}, nullcontext()),
        "reduce-overhead": ({"mode": "reduce-overhead"}, inductor_config.patch(graph_partition=False)),
        "reduce-overhead, graph_partition": ({"mode": "reduce-overhead"}, inductor_config.patch(graph_partition=True)),
        "dynx, inner='inductor'": ({"backend": cudagraphs.backend(cudagraphs.Config(inner="inductor"))}, nullcontext()),
        "dynx, inner='eager'": ({"backend": cudagraphs.backend(cudagraphs.Config())}, nullcontext()),
    }


def microseconds(call: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / CALLS * 1e6


@torch.no_grad()
def measured(title: str, model: nn.Module, x: torch.Tensor, rounds: int) -> list[dict[str, Any]]:
    calls: dict[str, Callable[[], object]] = {}
    kernels: dict[str, int] = {}
    expected = model(x)
    for name, (options, patched) in ways().items():
        torch._dynamo.reset()
        metrics.reset()
        with patched, inductor_config.patch(fx_graph_cache=False):
            run = torch.compile(model, **options)
            for _ in range(4):
                torch.testing.assert_close(run(x), expected, rtol=1e-2, atol=1e-2)
        calls[name], kernels[name] = (lambda run=run: run(x)), metrics.generated_kernel_count
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(microseconds(call))
    usual = statistics.median(times["inductor, uncaptured"])
    rows = [
        {"model": title, "way": name, "wall": statistics.median(each) / usual, "kernels": kernels[name]}
        for name, each in times.items()
    ]
    for row in rows:
        print(f"{title:<12} {row['way']:<36} {row['wall']:6.2f}x {row['kernels']:4} kernels")
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    x = torch.randn(64, 256, device="cuda")
    rows = measured("layers", Perceptrons().cuda(), x, options.rounds)
    rows += measured("branches", Branches().cuda(), torch.randn(1 << 16, device="cuda"), options.rounds)
    rows += measured("attention", Routed().cuda(), torch.randn(4, 64, 256, device="cuda"), options.rounds)
    wall = {(row["model"], row["way"]): row["wall"] for row in rows}
    ratios = {
        title: wall[title, "dynx, inner='inductor'"] / wall[title, "reduce-overhead, graph_partition"]
        for title in ("layers", "branches", "attention")
    }
    for title, ratio in ratios.items():
        print(f"{title}: dynx {ratio:.3f}x of graph_partition, bound {BOUND}x  {'ok' if ratio <= BOUND else 'MISSED'}")
    if options.out is not None:
        about = {
            "device": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "date": datetime.now(UTC).date().isoformat(),
        }
        options.out.write_text(json.dumps(about | {"rows": rows, "ratios": ratios, "bound": BOUND}, indent=1) + "\n")
    return int(any(ratio > BOUND for ratio in ratios.values()))


if __name__ == "__main__":
    sys.exit(main())
