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
# # Compiled autograd: why a backward pass is captured again
#
# torch can capture a whole backward pass as one graph, with its hooks and the code of custom Functions, and compile it. A pass with
# another autograd graph is captured again, and torch does not say why. This notebook captures the training of a small GPT-2, finds out
# what captures again, and removes it. The model is from `transformers`, with random weights.

# %%
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from dynx import autograd

torch.manual_seed(0)
config = GPT2Config(n_layer=1, n_embd=32, n_head=2, vocab_size=64, n_positions=64, bos_token_id=0, eos_token_id=0)
model = GPT2LMHeadModel(config).train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
norms = []


def record_norm(gradient):
    norms.append(float(gradient.norm()))


def train(steps, clear):
    for step in range(steps):
        tokens = torch.randint(0, 64, (2, 16 + 2 * (step // 3)))
        handle = model.lm_head.weight.register_hook(torch.compiler.disable(record_norm)) if step == 2 else None
        model(tokens, labels=tokens, use_cache=False).loss.backward()
        if handle is not None:
            handle.remove()
        optimizer.step()
        clear(step)


# %% [markdown]
# ## A first run
#
# Every second step clears the gradients, as one does to accumulate two batches; one step looks at a gradient with a hook; the batches
# are of two lengths. Each row of the log is a capture: the reason, and the line of the forward operation or of the hook.

# %%
with autograd.capture(backend="eager") as log:
    train(6, clear=lambda step: optimizer.zero_grad() if step % 2 else None)
log

# %% [markdown]
# Five captures for six steps: `.grad` is None in one step and a tensor in the next, a step has a hook, and the length changes, which is
# dynamic from then on: once for passes that find a `.grad`, and once for those that do not.

# %%
assert {capture.reason.kind for capture in log} == {"first", "grad", "hook", "shape"}
for capture in log:
    print(f"{capture.id}: {capture.calls} calls, {len(capture.reasons)} reasons: {capture.reason}")

# %% [markdown]
# ## What a capture has
#
# The autograd nodes in the order of the pass, with the lines of the forward operations, the parameters whose gradient is accumulated,
# hooks, and how many operations the graph has for each.

# %%
log[2]

# %% [markdown]
# The code of the graph is Python. A comment names the autograd node of each part.

# %%
code = log[2].code.splitlines()
start = next(number for number, line in enumerate(code) if "# SumBackward0" in line or "# NllLossBackward0" in line)
print("\n".join(line[:110] for line in code[start : start + 12]))

# %% [markdown]
# Hooks and gradients run in the order of eager autograd: torch moves nodes of the graph for that, and `order_errors` has those that it
# left at another place.

# %%
assert not any(capture.order_errors for capture in log)
print("nodes that torch moved:", [capture.moved for capture in log])

# %% [markdown]
# ## Would this pass be captured?
#
# `would_capture` compares a loss with the captures before `backward()` runs. Where it can read no difference it says that it does not
# know: torch also compares what cannot be read, such as hooks of intermediate results.

# %%
tokens = torch.randint(0, 64, (2, 24))
with autograd.capture(backend="eager") as log:
    same = log.would_capture(model(tokens, labels=tokens, use_cache=False).loss)
    changed = log.would_capture(model(tokens, labels=tokens, use_cache=False).loss * model.lm_head.weight.norm())
assert (same.outcome, changed.outcome) == ("unknown", "capture")
changed

# %% [markdown]
# ## Without recaptures
#
# `zero_grad(set_to_none=False)` keeps a tensor in `.grad`, and the hook is registered for all steps or for none. What stays is the
# first pass, which finds no `.grad`, one with fixed sizes, and one with dynamic sizes.

# %%
torch._dynamo.reset()
optimizer.zero_grad(set_to_none=False)


def train_alike(steps):
    for step in range(steps):
        tokens = torch.randint(0, 64, (2, 16 + 2 * (step // 3)))
        model(tokens, labels=tokens, use_cache=False).loss.backward()
        optimizer.step()
        if step % 2:
            optimizer.zero_grad(set_to_none=False)


with autograd.capture(backend="eager") as log:
    train_alike(6)
assert [capture.reason.kind for capture in log] == ["first", "grad", "shape"]
log
