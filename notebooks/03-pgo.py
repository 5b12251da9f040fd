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
# # Start the next process warm
#
# A model that sees several lengths is compiled twice: for the first length, and again with a dynamic size when a second one comes.
# What torch learned that way is a profile. This notebook saves it, looks into it, and lets the next process begin with it; then it
# asks why a graph was not found in torch's caches on disk. The model is GPT-2 from `transformers` with random weights.

# %%
import os
import tempfile
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2Model

import dynx
from dynx import pgo, symbols

folder = Path(tempfile.mkdtemp())
torch.manual_seed(0)
config = GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=64, n_positions=64, bos_token_id=0, eos_token_id=0)
model = GPT2Model(config).eval()


def encode(ids):
    return model(ids).last_hidden_state


def serve(*lengths, backend="eager"):
    compiled = torch.compile(encode, backend=backend)
    with torch.no_grad():
        for length in lengths:
            compiled(torch.zeros(2, length, dtype=torch.long))


# %% [markdown]
# ## What did the first process learn?

# %%
with dynx.watch() as w, pgo.record(run="monday") as recorder:
    serve(8, 12, 10)

print(len(w.compiles), "compilations")
assert len(w.compiles) == 2
recorder.explain()

# %% [markdown]
# The profile is a JSON file that can be merged over ranks and machines. torch identifies a function by the content of its file;
# `verify` says whether this checkout still has the functions of a profile.

# %%
profile = recorder.profile()
profile.save(folder / "profile.json")
print(f"{(folder / 'profile.json').stat().st_size} bytes")
profile

# %% [markdown]
# ## The next process begins with it
#
# `torch._dynamo.reset()` stands for the next process. Its only compilation is dynamic from the start, and the run says why.

# %%
torch._dynamo.reset()
with pgo.Profile.load(folder / "profile.json").apply(), dynx.watch() as w:
    serve(9, 14)

for change in w.dynamic:
    print(change)
assert len(w.compiles) == 1

# %% [markdown]
# ## Why did a graph miss the caches?
#
# The same function once under autocast, once without: `cachediff` compares the keys by which torch looked the graphs up, and names
# what made them differ. On the command line: `dynx cache why monday.dynx tuesday.dynx`. The caches are in an empty folder here: a
# graph that an earlier process has stored would be found, and there would be nothing to explain.


# %%
os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "caches")


def product(a, b):
    return a @ b


def recorded(*args):
    torch._dynamo.reset()
    with pgo.record() as recorder:
        torch.compile(product)(*args)
    return recorder


x = torch.ones(4, 4)
plain = recorded(x, x)
with torch.autocast("cpu"):
    under_autocast = recorded(x, x)

found = pgo.cachediff(plain, under_autocast)
assert [cause.component for cause in found] == ["torch.autocast"]
found

# %% [markdown]
# ## Names of symbols
#
# A symbol's name is part of the key. torch chooses it among a hundred numbers, and takes the next one if a number is in use: here
# both sizes of `a` want 97, so that the name of one depends on whether the other is dynamic.

# %%
seen = []


def backend(graph_module, example_inputs):
    seen.append(symbols.report(graph_module))
    return graph_module.forward


torch.compile(lambda a: a.transpose(0, 1) * 2, dynamic=True, backend=backend)(torch.ones(3, 5))
assert [symbol.collided for symbol in seen[0].symbols] == [False, True]
seen[0]

# %% [markdown]
# `symbols.install()` takes 63 bits of a hash of the source instead. All processes that share a cache need it.

# %%
torch._dynamo.reset()
with symbols.install():
    torch.compile(lambda a: a.transpose(0, 1) * 2, dynamic=True, backend=backend)(torch.ones(3, 5))

assert not any(symbol.collided for symbol in seen[1].symbols)
seen[1]
