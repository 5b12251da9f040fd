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
# torch stores compiled code as *cache entries*, each with *guards*: conditions under which the code may run. If no entry fits a
# call, torch compiles again, and after 8 compilations it gives up and runs the function eagerly. `dynx.guards` shows entries,
# guards and recompiles.

# %%
import warnings
from functools import partial

import torch
from torch import nn

import dynx
from dynx import guards

_ = torch.manual_seed(0)

# %% [markdown]
# ## A decoder that recompiles
#
# It counts its steps in an attribute, and reads a temperature from a global.

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
with dynx.watch() as w:
    for length in (4, 4, 6):
        decoder(text(length))

# %% [markdown]
# Every recompile has the guard that failed of each entry: the source, the expected and the actual value, and the line that asked
# for the guard.

# %%
for recompile in w.recompiles:
    for reason in recompile.reasons:
        line, rule = reason.location.line, reason.rule
        print(f"{recompile.id}  {reason.source}: {reason.expected}, then {reason.got}  (line {line}, {rule})")

# %% [markdown]
# `dynx rule DX101` has advice for the first: a buffer instead of an int. Then only the length is left.

# %%
torch._dynamo.reset()
model = Decoder()
del model.steps
model.register_buffer("steps", torch.zeros((), dtype=torch.long))
decoder = torch.compile(model, backend="eager", dynamic=False)
with dynx.watch() as w:
    for length in (4, 4, 6):
        decoder(text(length))
[(reason.source, reason.expected, reason.got) for recompile in w.recompiles for reason in recompile.reasons]

# %% [markdown]
# ## Would this call compile?
#
# `dynx.would_recompile` makes torch look up a call; nothing is compiled, and the function does not run.

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
# Both entries, with the guards on values of the program. `entry.tree` has all guards.

# %%
cache = guards.inspect(decoder)
cache

# %% [markdown]
# Which entries are used? And what happens if one is evicted?

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
# `guards.profile` times them on copies, and lists the settings that would check them faster, with the changes that each would miss.

# %%
costs = guards.profile(decoder, text(6))
costs

# %% [markdown]
# No cheaper setting is safe in every case, so `costs.apply()` refuses. If your program makes none of the changes that dict tags
# miss, apply them by name: no guard is dropped, and nothing compiles again.

# %%
with costs.apply("dict tags"):
    cheaper = guards.profile(decoder, text(6))
print("guards kept:", cheaper.frames[0].size == costs.frames[0].size, " cheaper:", cheaper.ns < costs.ns)

# %% [markdown]
# ## Separate entries for each backend and configuration
#
# torch.compile compares backends by identity, and ignores its configuration. `dynx.compile` compares both by value.

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
    print(compile.__module__, "compiled", len(graphs), "times for five equal backends")
    graphs.clear()

# %% [markdown]
# And it warns when a limit is reached, and why; torch runs the function eagerly without a warning.

# %%
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    g = dynx.compile(f, backend="eager", dynamic=False, per_backend_limit=2)
    for size in (1, 2, 3):
        g(torch.ones(size))
print(caught[-1].message)
