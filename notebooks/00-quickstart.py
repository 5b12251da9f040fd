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
# Use `dynx.watch()` to find out why a model compiled with `torch.compile` is slow or recompiles. It records each compilation,
# recompile and graph break with its cost and the line of your code that caused it, and says what to change. Watching has no side
# effects: `torch.compile` produces the same graphs, guards and results with and without it.

# %%
import torch
from torch import nn

import dynx

torch.manual_seed(0)

# %% [markdown]
# ## A model that recompiles
#
# This `Attention` module counts its calls in the Python attribute `self.calls`, and we call it with a different sequence length
# each time. Both cause recompiles. We call the compiled module inside `dynx.watch()`, and display the watch.


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
# The four calls compiled the module four times. The first table lists the *findings*: each names a problem, its location, the
# compile time that it cost, and what to change. Click a title below it to see the recorded compilations and recompiles.
#
# All of this is also available as Python objects, for example the findings:

# %%
for finding in w.findings:
    print(finding.rule, finding.location.own, "|", finding.title, "|", finding.advice)

# %% [markdown]
# Each recompile has the guards that failed: the source of the guarded value, the value that the guard expected, the value that
# the call had, and the lines of code that made Dynamo add the guard.

# %%
failed = w.recompiles[0].reasons[0]
print(f"{failed.kind} guard on {failed.source}: expected {failed.expected}, got {failed.got}")
print("requested by:", *failed.requesters, sep="\n  ")

# %% [markdown]
# ## Follow the advice
#
# dynx suggests two changes: make `self.calls` a tensor buffer, because Dynamo guards on the value of a Python int but not on that of
# a tensor; and mark dimension 1 of `x`, the sequence length, as dynamic. With both changes, nothing recompiles:


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
# ## Find graph breaks
#
# Dynamo breaks the graph at `print`, so this function is split in two. The finding names the line of the graph break.


# %%
def step(x):
    y = x.relu()
    print("debug: relu done")
    return y.sum()


with dynx.watch() as w:
    torch.compile(step, backend="eager")(torch.randn(8))

w

# %% [markdown]
# ## Save a run to a file
#
# `w.run` holds everything that the watch recorded. Save it as a file of JSON lines to compare it later or send it to someone
# else: `dynx show quickstart.dynx` and `dynx.Run.load` read it on any machine, also without torch.

# %%
import tempfile
from pathlib import Path

path = Path(tempfile.mkdtemp()) / "quickstart.dynx"
w.run.save(path)
dynx.Run.load(path)
