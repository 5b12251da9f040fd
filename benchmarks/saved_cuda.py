"""Activation memory and step time of GPT-2 124M (8 x 512) on a GPU, with and without hooks, beside what torch has.

python benchmarks/saved_cuda.py [--dtype bfloat16|float32] [--backend inductor|dynx_cudagraphs|train_step] [--rows 'fp8;int8']
    [--out benchmarks/results/saved-h200.json]
Memory is what is allocated above parameters and optimizer: after forward, and at the peak of the step; CUDA graphs keep it in
pools, so with them only times are measured. Step times are paired with those without hooks.
Bounds with fp8: saved bytes 0.55x in bfloat16 and 0.30x in float32, peak 0.75x and 0.60x, time 1.10x.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from pairs import Measured, ratio, report
from torch._functorch import config as functorch_config
from torch._inductor import config as inductor_config
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.nn import functional
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts
from transformers import GPT2Config, GPT2LMHeadModel

from dynx import cudagraphs, saved

BOUNDS = {"bfloat16": (0.55, 0.75), "float32": (0.30, 0.60)}
TIME = 1.10
STEPS = 12


class How(NamedTuple):
    """How a row saves memory."""

    context: AbstractContextManager[object] = nullcontext()  # around forward
    compiling: Callable[[], AbstractContextManager[object]] = nullcontext  # settings, which are no part of Dynamo's guards
    checkpointing: Callable[[], object] | None = None  # the context_fn of torch.utils.checkpoint


class Row:
    """A model, its optimizer, and a compiled training step."""

    def __init__(self, dtype: torch.dtype, backend: str, how: How) -> None:
        torch.manual_seed(0)
        config = GPT2Config(attn_implementation="sdpa")
        self.model = GPT2LMHeadModel(config).to("cuda", dtype).train()
        if how.checkpointing is not None:
            self.model.gradient_checkpointing_enable({"use_reentrant": False, "context_fn": how.checkpointing})
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, foreach=True)
        self.tokens = torch.randint(0, config.vocab_size, (8, 512), device="cuda")
        self.context = how.context
        self.train = None
        if backend == "train_step":
            self._record(torch.compile(self._loss))
            return
        chosen = cudagraphs.backend(cudagraphs.Config(inner="inductor")) if backend == "dynx_cudagraphs" else backend
        self.loss = torch.compile(self._loss, backend=chosen) if backend != "eager" else self._loss
        with how.compiling():
            for _ in range(4):  # optimizer state, compilation, capture
                self.step()

    def _loss(self, tokens):
        logits = self.model(tokens, use_cache=False).logits
        return functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())

    def _record(self, loss) -> None:
        """Record forward, backward and optimizer as one CUDA graph."""

        def loss_under_hooks(tokens):
            with self.context:
                return loss(tokens)

        parameters = list(self.model.parameters())
        self.optimizer = torch.optim.AdamW(parameters, lr=1e-4, foreach=True, capturable=True)
        self.train = cudagraphs.train_step(loss_under_hooks, parameters, self.tokens, optimizer=self.optimizer)
        for _ in range(4):
            self.step()

    def step(self) -> tuple[int, int]:
        """Train once; return the bytes after forward and at the peak, above what was allocated before."""
        if self.train is not None:
            self.train(self.tokens)
            return 1, 1
        torch.cuda.synchronize()
        base = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        with self.context:
            loss = self.loss(self.tokens)
        held = torch.cuda.memory_allocated() - base
        loss.backward()
        peak = torch.cuda.max_memory_allocated() - base
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return held, peak

    def seconds(self) -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(STEPS):
            self.step()
        torch.cuda.synchronize()
        return time.perf_counter() - start


def rows() -> dict[str, How]:
    """Return how each row saves memory."""
    rule, codecs = saved.rule, saved.codecs
    masks, fp8 = rule(codecs.bits()), rule(codecs.fp8(), min_numel=1024)
    cheap = rule(codecs.recompute(), module="GELU|LayerNorm", min_numel=10_000)  # not the means, which are small
    blocks = rule(codecs.fp8(), min_numel=1024, module="transformer")  # not the logits
    return {
        "fp8": How(saved.hooks(masks, fp8, validate=False)),
        "fp8, GELU and LayerNorm computed again": How(saved.hooks(masks, cheap, blocks, validate=False)),
        "fp8 block": How(saved.hooks(masks, rule(codecs.fp8(per="block"), min_numel=1024), validate=False)),
        "fp8 tensor": How(saved.hooks(masks, rule(codecs.fp8(per="tensor"), min_numel=1024), validate=False)),
        "int8": How(saved.hooks(masks, rule(codecs.int8(), min_numel=1024), validate=False)),
        "bits": How(saved.hooks(masks)),
        "fp8 schedule=graph": How(saved.hooks(masks, fp8, validate=False, schedule="graph")),
        "offload schedule=graph": How(saved.hooks(rule(codecs.offload(), min_numel=1024), schedule="graph")),
        "offload": How(saved.hooks(rule(codecs.offload(), min_numel=1024))),
        "save_on_cpu": How(torch.autograd.graph.save_on_cpu(pin_memory=True)),
        "activation_memory_budget=0.5": How(compiling=partial(functorch_config.patch, activation_memory_budget=0.5)),
        "activation_quantization_aten_pass": How(compiling=quantizing),
        "enable_activation_offloading": How(compiling=offloading),
        "selective checkpointing": How(checkpointing=partial(create_selective_checkpoint_contexts, saves_products)),
    }


def quantizing() -> AbstractContextManager[object]:
    """Return torch's settings for saved tensors in fp8 with scales, of at least 1 MiB as here."""
    options = {
        "quant_type": "torch.float8_e4m3fn",
        "use_scaling": True,
        "size_in_mb": 1,
        "exclude_primals": True,
        "allowed_dtypes": "torch.bfloat16;torch.float32",
    }
    return inductor_config.patch(post_grad_fusion_options={"activation_quantization_aten_pass": options})


@contextmanager
def offloading() -> Iterator[None]:
    """Patch torch's settings for saved tensors on the host; it offloads what a pass over the joint graph marks."""

    class Mark(CustomGraphPass):
        def __call__(self, graph: torch.fx.Graph) -> None:
            for node in graph.nodes:
                node.meta["should_offload"] = True

        def uuid(self) -> None:
            return None

    with functorch_config.patch(enable_activation_offloading=True), inductor_config.patch(joint_custom_post_pass=Mark()):
        yield


def saves_products(_, operator, *args, **kwargs) -> CheckpointPolicy:
    """Save what matrix products and attention return, and compute the rest again."""
    products = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    is_saved = operator in products or "scaled_dot_product" in str(operator)
    return CheckpointPolicy.MUST_SAVE if is_saved else CheckpointPolicy.PREFER_RECOMPUTE


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", choices=BOUNDS, default="bfloat16")
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--rows", default="fp8;int8;bits")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    dtype = getattr(torch, arguments.dtype)
    torch._dynamo.config.recompile_limit = 64  # all rows compile one function
    plain = Row(dtype, arguments.backend, How())
    before = memory_of(plain)
    print(f"no hooks: saved {before[0] / 2**20:.0f} MiB, peak {before[1] / 2**20:.0f} MiB", flush=True)
    measured: list[Measured] = []
    for name in arguments.rows.split(";"):
        how = rows()[name]
        if how.compiling is not nullcontext:
            torch._dynamo.reset()
        row = Row(dtype, "eager" if name == "save_on_cpu" else arguments.backend, how)
        held, peak = memory_of(row)
        label = f"{name}, {arguments.dtype}, {arguments.backend}"
        bounds = BOUNDS[arguments.dtype] if name.startswith("fp8") else (1.0, 1.0)
        memory = (("saved", held, before[0], bounds[0]), ("peak", peak, before[1], bounds[1]))
        for what, value, base, bound in memory if arguments.backend not in ("dynx_cudagraphs", "train_step") else ():
            share = value / base
            measured.append(Measured(f"{label}: {what}", share, share, share, 1, bound))
        times = ratio(f"{label}: time", row.seconds, plain.seconds, bound=TIME, pairs=9)
        measured.append(times)
        for one in measured[-3:]:
            print(one, flush=True)
        del row
    return report("activation memory", measured, arguments.out)


def memory_of(row: Row) -> tuple[float, float]:
    """Return the medians of the bytes after forward and at the peak."""
    found = [row.step() for _ in range(3)]
    return statistics.median(held for held, _ in found), statistics.median(peak for _, peak in found)


if __name__ == "__main__":
    sys.exit(main())
