"""A whole training step with compiled autograd, beside other ways; the gradients are compared with those of eager code.

Times are wall times of a step, with the optimizer, relative to `torch.compile`, one way after the other. Bound: with compiled
autograd and `dynx_cudagraphs`, a step takes at most as long as under `torch.compile`.

python benchmarks/compiled_autograd.py [--rounds 20] [--out benchmarks/results/compiled-autograd-h100.json]
Exits with 1 when the bound is missed, or gradients differ. Needs a GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import torch
from torch import nn

from dynx import autograd, cudagraphs

STEPS = 20
ALLOWED = 5e-3  # relative difference of gradients: kernels of inductor round differently
Step = Callable[[], None]


def model() -> nn.Module:
    torch.manual_seed(0)
    layers = (nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, dropout=0.0) for _ in range(6))
    return nn.Sequential(*layers).cuda()


def optimizer_of(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(net.parameters(), lr=1e-5, fused=True, capturable=True)


@contextmanager
def eager_backward(net: nn.Module, x: torch.Tensor, **options: object) -> Iterator[Step]:
    """The forward pass compiled by `torch.compile`, autograd and the optimizer by eager code."""
    forward, optimizer = torch.compile(net, **options), optimizer_of(net)  # type: ignore[call-overload]

    def step() -> None:
        optimizer.zero_grad()
        forward(x).square().mean().backward()
        optimizer.step()

    yield step


@contextmanager
def captured_backward(net: nn.Module, x: torch.Tensor, forward: str, backward: str) -> Iterator[Step]:
    """The backward pass captured by compiled autograd, and compiled by the backend `backward`."""
    with autograd.capture(backend=backward, dynamic=False, lines=False), eager_backward(net, x, backend=forward) as step:
        yield step


@contextmanager
def one_graph(net: nn.Module, x: torch.Tensor) -> Iterator[Step]:
    """`cudagraphs.train_step`: the whole step is one CUDA graph, of eager kernels."""
    step = cudagraphs.train_step(
        lambda: net(x).square().mean(), net.parameters(), optimizer=optimizer_of(net), unsafe_skip_checks=True
    )
    yield lambda: step() and None


@contextmanager
def one_captured_graph(net: nn.Module, x: torch.Tensor) -> Iterator[Step]:
    """`train_step` with a backward pass captured by compiled autograd: forward, backward and optimizer are one graph."""
    forward, optimizer = torch.compile(net, backend="aot_eager"), optimizer_of(net)
    with autograd.capture(backend="aot_eager", dynamic=False, lines=False):
        step = cudagraphs.train_step(
            lambda: forward(x).square().mean(), net.parameters(), optimizer=optimizer, unsafe_skip_checks=True
        )
        yield lambda: step() and None


@contextmanager
def one_compiled_graph(net: nn.Module, x: torch.Tensor) -> Iterator[Step]:
    """`cudagraphs.train_step` with forward and backward kernels of inductor, without compiled autograd."""
    forward = torch.compile(net)
    step = cudagraphs.train_step(
        lambda: forward(x).square().mean(), net.parameters(), optimizer=optimizer_of(net), unsafe_skip_checks=True
    )
    yield lambda: step() and None


WAYS: dict[str, Callable[[nn.Module, torch.Tensor], object]] = {
    "eager": lambda net, x: eager_backward(net, x, backend="eager"),
    "torch.compile": eager_backward,
    "torch.compile, reduce-overhead": lambda net, x: eager_backward(net, x, mode="reduce-overhead"),
    "captured, inductor": lambda net, x: captured_backward(net, x, "inductor", "inductor"),
    "captured, dynx_cudagraphs": lambda net, x: captured_backward(net, x, "dynx_cudagraphs", "dynx_cudagraphs"),
    "train_step": one_graph,
    "train_step, captured": one_captured_graph,
    "train_step, inductor": one_compiled_graph,
}


def gradients(way: str, x: torch.Tensor) -> list[torch.Tensor]:
    """The gradients of the third step."""
    torch._dynamo.reset()
    net = model()
    with WAYS[way](net, x) as step:  # type: ignore[attr-defined]
        for _ in range(3):
            step()
        return [parameter.grad.clone() for parameter in net.parameters() if parameter.grad is not None]


def difference(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """The largest relative difference of a gradient; infinite if gradients are missing."""
    if len(found) != len(expected):
        return float("inf")
    return max(float((one - other).norm() / other.norm().clamp_min(1e-12)) for one, other in zip(found, expected, strict=True))


def times(rounds: int, x: torch.Tensor) -> dict[str, list[float]]:
    torch._dynamo.reset()
    measured: dict[str, list[float]] = {way: [] for way in WAYS}
    for way in WAYS:  # one after the other: a block of capture is open only while its way runs
        with WAYS[way](model(), x) as step:  # type: ignore[attr-defined]
            for _ in range(5):
                step()
            for _ in range(rounds):
                torch.cuda.synchronize()
                start = time.perf_counter()
                for _ in range(STEPS):
                    step()
                torch.cuda.synchronize()
                measured[way].append((time.perf_counter() - start) / STEPS)
    return measured


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    x = torch.randn(8, 64, 256, device="cuda", generator=torch.Generator("cuda").manual_seed(1))
    expected = gradients("eager", x)
    differences = {way: difference(gradients(way, x), expected) for way in WAYS}
    measured = times(arguments.rounds, x)
    base = statistics.median(measured["torch.compile"])
    rows = [
        {
            "way": way,
            "milliseconds": round(statistics.median(each) * 1e3, 4),
            "ratio": round(statistics.median(each) / base, 4),
            "gradients": differences[way],
        }
        for way, each in measured.items()
    ]
    for row in rows:
        print(f"{row['way']:<34} {row['milliseconds']:8.3f} ms  {row['ratio']:6.3f}x  gradients {row['gradients']:.1e}")
    if arguments.out is not None:
        header = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "date": f"{datetime.now(UTC):%Y-%m-%d}"}
        arguments.out.write_text(json.dumps({**header, "rows": rows}, indent=1) + "\n")
    ratio = next(row["ratio"] for row in rows if row["way"] == "captured, dynx_cudagraphs")
    return int(float(str(ratio)) > 1 or max(differences.values()) > ALLOWED)


if __name__ == "__main__":
    sys.exit(main())
