"""Activation memory and gradient error of a transformer of two blocks, with hooks and with what torch has, on the CPU.

python benchmarks/saved.py [--out benchmarks/results/saved-cpu.json]
Bounds: fp8 stores activations in 1/3.8 of the bytes with a gradient cosine of 0.9995; int8 has a relative error of 0.01; masks
take an eighth, exactly; peaks of forward and backward, simulated in the order of the graphs, are 0.55x those without hooks; 100
steps that create their hooks anew compile once. The rows of torch have no bounds.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext

import torch
from pairs import Measured, out_option, report
from torch import nn
from torch._functorch import config as functorch_config

from dynx import saved

BACKEND = "aot_eager"
BATCH = torch.randn(4, 64, 128, generator=torch.Generator().manual_seed(0))


class Block(nn.Module):
    """A transformer block that keeps its attention weights, as eager code does."""

    def __init__(self, width: int = 128, heads: int = 4, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.dropout = heads, nn.Dropout(dropout)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        shape = (batch, length, 3, self.heads, width // self.heads)
        q, k, v = self.qkv(self.norm1(x)).view(shape).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(self.dropout(nn.functional.gelu(self.up(self.norm2(x)))))


class Model(nn.Module):
    def __init__(self, blocks: int = 2, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.Sequential(*(Block(dropout=dropout) for _ in range(blocks)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks(x).square().mean()


def value(name: str, found: float, bound: float, unit: str = "x") -> Measured:
    """Return one number that has no noise; it has to be at most the bound."""
    return Measured(name, found, found, found, 1, bound + 1e-9, unit)


def codecs_of_dynx() -> list[Measured]:
    """Measure each codec on two blocks, and peaks on six."""
    rule, codecs, results = saved.rule, saved.codecs, []
    model = Model()
    for name, codec, share, loss in (
        ("bf16", codecs.bf16(), 0.505, 1e-5),
        ("fp8 row", codecs.fp8(), 1 / 3.8, 0.0005),
        ("fp8 tensor", codecs.fp8(per="tensor"), 1 / 3.8, 0.0005),
        ("int8 row", codecs.int8(), 1 / 3.8, 0.0005),
        ("int4 row", codecs.int4(), 1 / 7, 0.02),
    ):
        error = saved.grad_error(model, BATCH, hooks=saved.hooks(rule(codec, min_numel=1024)), backend=BACKEND)
        results.append(value(f"{name}: bytes stored", error.saved_bytes / error.bytes, share))
        results.append(value(f"{name}: 1 - cosine of gradients", 1 - error.cosine, loss, ""))
        if name == "int8 row":
            results.append(value(f"{name}: relative error", error.relative, 0.01, ""))
    masked = Model(dropout=0.1)
    bits = saved.hooks(rule(codecs.bits()))
    masks = [
        tensor for tensor in saved.report(masked, BATCH, hooks=bits, backend=BACKEND).activations if tensor.codec == "bits"
    ]
    results.append(value("masks: bytes stored", sum(one.saved_bytes for one in masks) / sum(one.bytes for one in masks), 1 / 8))
    results.append(value("masks: error", saved.grad_error(masked, BATCH, hooks=bits, backend=BACKEND).relative, 0.0, ""))
    graph = saved.report(Model(6), BATCH, hooks=saved.hooks(rule(codecs.fp8(), min_numel=1024)), backend=BACKEND).graphs[0]
    results.append(value("fp8: peak of forward", graph.forward_peak / graph.forward_peak_before, 0.55))
    results.append(value("fp8: peak of backward", graph.backward_peak / graph.backward_peak_before, 0.55))
    return results


def compiles_of_steps(steps: int = 100) -> Measured:
    """Count the compilations of steps that create their hooks anew."""
    graphs: list[saved.SavedGraph] = []
    compiled = torch.compile(Model(1), backend=BACKEND)
    with saved.SavedGraphs(graphs.append):
        for _ in range(steps):
            with saved.hooks(saved.rule(saved.codecs.fp8(), min_numel=1024)):
                loss = compiled(BATCH)
            loss.backward()
    return value(f"compilations in {steps} steps", len(graphs), 1, "")


def beside_it() -> list[Measured]:
    """Measure what torch has: bytes of activations that the forward graph returns, relative to a plain one."""
    model, results = Model(), []
    plain = saved.report(model, BATCH, backend="inductor").bytes
    for name, settings in (
        ("torch, activation_memory_budget=0.5", {"activation_memory_budget": 0.5}),
        ("torch, activation_memory_budget=0.25", {"activation_memory_budget": 0.25}),
    ):
        with functorch_config.patch(**settings):
            found = saved.report(model, BATCH, backend="inductor")
        results.append(value(f"{name}: bytes stored", found.bytes / plain, 1.0))
    checkpointed = saved.report(lambda x: checkpointed_loss(model, x), BATCH, backend="inductor").bytes
    results.append(value("torch, checkpoint of each block: bytes stored", checkpointed / plain, 1.0))
    results.append(value("torch, plain bf16 saved_tensors_hooks: bytes stored", plain_hooks(model) / plain, 10.0))
    return results


def checkpointed_loss(model: Model, x: torch.Tensor) -> torch.Tensor:
    for block in model.blocks:
        x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
    return x.square().mean()


def plain_hooks(model: Model) -> int:
    """Return the bytes that eager code stores under hooks of torch, which cannot be compiled; parameters are packed too."""
    stored = 0

    def pack(tensor: torch.Tensor) -> tuple[torch.dtype, torch.Tensor]:
        nonlocal stored
        packed = tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor
        stored += packed.nbytes
        return tensor.dtype, packed

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed[1].to(packed[0])), nullcontext():
        model(BATCH).backward()
    return stored


def main() -> int:
    out = out_option(__doc__)
    return report("activation memory", [*codecs_of_dynx(), compiles_of_steps(), *beside_it()], out)


if __name__ == "__main__":
    sys.exit(main())
