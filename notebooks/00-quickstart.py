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
# # dynx in five minutes
#
# A compiled model is slow, or compiles again and again. `dynx.watch()` says why, at which line, and what to change.
# It changes nothing itself: the same graphs, guards and results with and without.

# %%
import torch
from torch import nn

import dynx

torch.manual_seed(0)

# %% [markdown]
# ## A model with a mistake
#
# `Attention` keeps the number of calls on itself. That looks harmless.


# %%
class Attention(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = (q @ k.transpose(-1, -2)) / (x.size(-1) ** 0.5)
        return scores.softmax(-1) @ v * (1 + 0.01 * self.calls)


model = Attention()
compiled = torch.compile(model, backend="eager")

with dynx.watch() as w, torch.no_grad():
    for length in (4, 5, 6, 7):
        compiled(torch.randn(1, length, 32))

w

# %% [markdown]
# Four calls, four compilations. The findings are sorted by the seconds they cost; the tables below them unfold.
# Everything is also data:

# %%
for finding in w.findings:
    print(finding.rule, finding.location.own, "|", finding.title, "|", finding.advice)

# %%
first = w.recompiles[0].reasons[0]
print(first.kind, first.source, "was", first.expected, "and is now", first.got)
print("asked for by:", *first.requesters, sep="\n  ")

# %% [markdown]
# ## Follow the advice
#
# The number of calls becomes a tensor buffer, and the second dimension is marked as dynamic.


# %%
class Fixed(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = (q @ k.transpose(-1, -2)) / (x.size(-1) ** 0.5)
        return scores.softmax(-1) @ v * (1 + 0.01 * self.calls)


compiled = torch.compile(Fixed(), backend="eager")

with dynx.watch() as w, torch.no_grad():
    for length in (4, 5, 6, 7):
        x = torch.randn(1, length, 32)
        torch._dynamo.mark_dynamic(x, 1)
        compiled(x)

assert not w.recompiles
w

# %% [markdown]
# ## Where a graph breaks


# %%
def step(x):
    y = x.relu()
    print("debug: relu done")
    return y.sum()


with dynx.watch() as w:
    torch.compile(step, backend="eager")(torch.randn(8))

w

# %% [markdown]
# ## Keep a run
#
# A run is a small file of JSON lines. It can be opened where torch is not installed: `dynx show quickstart.dynx`.

# %%
import tempfile
from pathlib import Path

path = Path(tempfile.mkdtemp()) / "quickstart.dynx"
w.run.save(path)
dynx.Run.load(path)
