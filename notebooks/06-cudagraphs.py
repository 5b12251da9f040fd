# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # CUDA graphs without magic
#
# A CUDA graph replays all kernels of a piece of a program with one call from the CPU. What makes that hard is memory: a replay
# reads and writes the addresses that were captured. `dynx.cudagraphs` says for each input how it gets there, and for each graph
# that is not captured why.
#
# This page runs on a GPU where there is one, and otherwise on an emulator that fails where CUDA would.

# %%
import copy

import torch
from torch import nn

from dynx import cudagraphs
from dynx.errors import UsageError

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CONFIG = cudagraphs.Config(runtime="auto" if DEVICE == "cuda" else "emulator")
_ = torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, width=64, heads=4):
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in self.qkv(self.norm(x)).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(mixed.transpose(1, 2).flatten(2))


model = nn.Sequential(Block(), Block()).to(DEVICE)
x = torch.randn(2, 16, 64, device=DEVICE)

# %% [markdown]
# ## What becomes of each input

# %%
with torch.no_grad():
    report = cudagraphs.explain(lambda x: model(x), x, config=CONFIG)
report

# %% [markdown]
# Parameters are read where they lie: torch's own `backend="cudagraphs"` copies them on every call. The one argument is copied;
# with `inputs="patch"` it is not, the graph is told where to read it. That is proven when the graph is recorded.

# %%
patched = cudagraphs.Config(runtime=CONFIG.runtime, inputs="patch")
try:
    with torch.no_grad():
        print(cudagraphs.explain(lambda x: model(x), x, config=patched).graphs[0].copies, "copies a call")
except Exception as error:  # on a GPU without cuda-bindings
    print(error)

# %% [markdown]
# ## What cannot be captured
#
# Reading a value on the CPU ends a capture. The graph is divided there, and what lies before and behind is captured.


# %%
def clipped(x):
    y = model(x)
    positive = y[y > 0]  # a size that depends on values
    return model(y / positive.mean())


with torch.no_grad(), torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
    report = cudagraphs.explain(clipped, x, config=CONFIG)
for piece in report.graphs[0].plan.pieces:
    print(piece.launches, "launches:", piece.why_uncaptured or "captured")
for skip in report.graphs[0].plan.skips:
    print(f"line {skip.location.line}: {skip.reason}\n  {skip.advice}")

# %% [markdown]
# ## Two forward passes before their backward passes
#
# What the first saved must not be overwritten by the second: it gets a recording of its own, in memory that no other replay uses.

# %%
cudagraphs.reset()
run = torch.compile(model, backend=cudagraphs.backend(CONFIG))
other = copy.deepcopy(model)
for _ in range(4):
    for call, module in ((run, model), (other, other)):
        module.zero_grad()
        losses = [call(each).square().mean() for each in (x, x + 1)]
        for loss in losses:
            loss.backward()
for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
    torch.testing.assert_close(mine.grad, theirs.grad)
cudagraphs.stats()

# %% [markdown]
# ## A whole training step
#
# Forward, backward, clipping and the optimizer in one recording. The first call does its step as it is, the second records; none
# is spent on warming up.

# %%
optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(1e-2, device=DEVICE), fused=True, capturable=DEVICE == "cuda")
step = cudagraphs.train_step(
    lambda x: (model(x) - 1).square().mean(), model.parameters(), x, optimizer=optimizer, clip_grad_norm=1.0, config=CONFIG
)
losses = [step(x).item() for _ in range(20)]
print(f"{losses[0]:.3f} … {losses[-1]:.3f}")

# %% [markdown]
# What a replay would leave out in silence is refused by name.

# %%
model[0].qkv.weight.register_hook(lambda gradient: gradient * 2)
try:
    cudagraphs.train_step(lambda x: model(x).mean(), model.named_parameters(), config=CONFIG)
except UsageError as error:
    print(error)

# %% [markdown]
# ## Without Dynamo
#
# `fast_path` replays a module without torch.compile. It notices what changes in the module, and records anew.

# %%
cudagraphs.reset()
net = nn.Sequential(nn.Linear(64, 64), nn.GELU()).to(DEVICE)
run = cudagraphs.fast_path(net, x, config=CONFIG)
with torch.no_grad():
    torch.testing.assert_close(run(x), net(x))
    net[0].weight = nn.Parameter(torch.zeros_like(net[0].weight))
    for _ in range(2):
        torch.testing.assert_close(run(x), net(x))
cudagraphs.stats().recordings
