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
# # Why did it recompile?
#
# torch keeps what it compiled with *guards*: conditions under which that code may run. When no version fits a call, it compiles
# again, and after 8 times it gives up and runs the function eagerly. `dynx.guards` makes versions, guards and recompiles objects
# that one can ask.

# %%
import warnings
from functools import partial

import torch
from torch import nn

import dynx
from dynx import guards

_ = torch.manual_seed(0)

# %% [markdown]
# ## A decoder with habits
#
# It counts its steps on itself, and reads a temperature from a global.

# %%
TEMPERATURE = 1.0


class Decoder(nn.Module):
    def __init__(self, steps=0, width=16):
        super().__init__()
        self.embed = nn.Embedding(50, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(12))
        self.head = nn.Linear(width, 50)
        self.steps = steps

    def forward(self, tokens):
        self.steps += 1
        x = self.embed(tokens)
        for layer in self.layers:
            x = x + torch.relu(layer(x))
        return self.head(x) / TEMPERATURE


def text(length):
    return torch.zeros(1, length, dtype=torch.long)


decoder = torch.compile(Decoder(), backend="eager")
with guards.recompiles() as log:
    for length in (4, 4, 6):
        decoder(text(length))

# %% [markdown]
# Every recompile says which guard failed of each version: the value, what was expected, what came, and the line that asked.

# %%
for recompile in log:
    for each in recompile.reasons:
        print(f"{recompile.id}  {each.source}: {each.expected}, then {each.got}  (line {each.location.line}, {each.rule})")

# %% [markdown]
# `dynx rule DX101` says what helps against the first: a buffer instead of an int. Then only the length is left.

# %%
torch._dynamo.reset()
model = Decoder()
del model.steps
model.register_buffer("steps", torch.zeros((), dtype=torch.long))
decoder = torch.compile(model, backend="eager", dynamic=False)
with guards.recompiles() as log:
    for length in (4, 4, 6):
        decoder(text(length))
[(each.source, each.expected, each.got) for recompile in log for each in recompile.reasons]

# %% [markdown]
# ## Would this call compile?
#
# `dynx.would_recompile` asks torch about a call, and nothing is compiled or run.

# %%
dynx.would_recompile(decoder, text(9))

# %%
TEMPERATURE = 0.7
dynx.would_recompile(decoder, text(4))

# %%
TEMPERATURE = 1.0
dynx.would_recompile(decoder, text(4)).hit

# %% [markdown]
# ## What is in the cache?
#
# Both versions, with the guards that concern the program. `entry.tree` has all of them.

# %%
cache = guards.inspect(decoder)
cache

# %% [markdown]
# Which of them are used? And what if one goes?

# %%
first, second = cache.entries
with guards.count_hits(decoder) as hits:
    for length in (4, 6, 6, 6):
        decoder(text(length))
print(dict(hits))

guards.evict(first)
dynx.would_recompile(decoder, text(4)).outcome, dynx.would_recompile(decoder, text(6)).outcome

# %% [markdown]
# ## What do the guards cost?
#
# `guards.profile` times them on copies, and the ways to have them checked that would cost less, with the changes each would miss.

# %%
costs = guards.profile(decoder, text(6))
costs

# %% [markdown]
# Nothing cheaper is safe in every case, so `costs.apply()` refuses. Who does nothing of what dict tags would miss can have them, by
# name: no guard is dropped, and nothing compiles again.

# %%
with costs.apply("dict tags"):
    cheaper = guards.profile(decoder, text(6))
print("guards kept:", cheaper.frames[0].size == costs.frames[0].size, " cheaper:", cheaper.ns < costs.ns)

# %% [markdown]
# ## One cache for each backend and configuration
#
# torch.compile knows backends by identity, and does not look at its configuration. `dynx.compile` does.

# %%
graphs = []


def collect(gm, inputs, level):
    graphs.append(level)
    return gm.forward


def f(x):
    return x.sin() + 1


for compile in (torch.compile, dynx.compile):
    for _ in range(5):
        compile(f, backend=partial(collect, level=2))(torch.ones(3))
    print(compile.__module__, "compiled", len(graphs), "times for one backend that was written five times")
    graphs.clear()

# %% [markdown]
# And it says when a limit is reached, and why, where torch goes on eagerly.

# %%
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    g = dynx.compile(f, backend="eager", dynamic=False, per_backend_limit=2)
    for size in (1, 2, 3):
        g(torch.ones(size))
print(told[-1].message)
