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
# # Activation memory against gradient error
#
# What forward saves for backward is most of the memory of training. This notebook looks at what a small GPT-2 saves, stores it in fewer
# bytes, and measures what that does to the gradients. The model is from `transformers`, with random weights; the graphs are those
# that inductor would compile, run by the backend `aot_eager_decomp_partition`, which compiles faster.

# %%
import torch
from IPython.display import SVG
from transformers import GPT2Config, GPT2LMHeadModel

from dynx import saved

torch.manual_seed(0)
config = GPT2Config(n_layer=1, n_embd=64, n_head=2, vocab_size=128, n_positions=64, bos_token_id=0, eos_token_id=0)
model = GPT2LMHeadModel(config).train()
tokens = torch.randint(0, 128, (4, 64))
backend = "aot_eager_decomp_partition"


def loss(ids):
    return model(ids, labels=ids, use_cache=False).loss


# %% [markdown]
# ## What is saved
#
# Parameters and inputs are saved too, but they are in memory anyway. The bars are bytes by module and by line.

# %%
saved.report(loss, tokens, backend=backend)

# %% [markdown]
# ## In fewer bytes
#
# Two rules: masks of dropout take one bit for each element, floating-point activations 8 bits and a scale for each row.

# %%
hooks = saved.hooks(saved.rule(saved.codecs.bits()), saved.rule(saved.codecs.fp8(), min_numel=1024))
report = saved.report(loss, tokens, hooks=hooks, backend=backend)
assert report.saved_bytes < 0.35 * report.bytes
report

# %% [markdown]
# ## What it does to the gradients
#
# The same batch with the same dropout, with and without hooks.

# %%
error = saved.grad_error(loss, tokens, hooks=hooks, backend=backend)
assert error.cosine > 0.999
error

# %% [markdown]
# ## Memory against error
#
# Each codec on all activations, and the plan that `saved.plan` finds for a budget: it gives each tensor the codec that costs
# the least error for the bytes that it frees. It compiles the function once for each codec, and runs backward for each tensor.

# %%
codecs = saved.codecs
points = {}
for codec in (codecs.bf16(), codecs.fp8(), codecs.fp8("e5m2"), codecs.int8(), codecs.int4()):
    rules = saved.rule(codecs.bits()), saved.rule(codec, min_numel=1024)
    measured = saved.grad_error(loss, tokens, hooks=saved.hooks(*rules, validate=False), backend=backend)
    points[codec.name] = (100 * measured.saved_bytes / measured.bytes, measured.relative)
plan = saved.plan(loss, tokens, budget="22%", codecs=(codecs.bits(), codecs.int8(), codecs.int4()), backend=backend)
points["plan for 22 %"] = (100 * plan.saved_bytes / plan.bytes, plan.relative)
for name, (share, relative) in points.items():
    print(f"{name:<16} {share:5.1f} % of the bytes   relative error {relative:.2g}")


# %%
def plot(points, width=620, height=340):
    """Return an SVG with the share of the bytes on one axis, and the relative error, logarithmic, on the other."""
    from math import log10

    low, high = -5, 0

    def place(share, relative):
        y = (log10(max(relative, 10**low)) - low) / (high - low)
        return 60 + (width - 200) * share / 100, height - 40 - (height - 70) * y

    marks = []
    for power in range(low, high + 1):
        _, y = place(0, 10**power)
        marks.append(f'<line x1="60" x2="{width - 140}" y1="{y}" y2="{y}" stroke="#8884"/>')
        marks.append(f'<text x="54" y="{y + 4}" text-anchor="end">1e{power}</text>')
    for share in range(0, 101, 20):
        x, _ = place(share, 1)
        marks.append(f'<text x="{x}" y="{height - 22}" text-anchor="middle">{share} %</text>')
    for name, point in points.items():
        x, y = place(*point)
        color = "#c2410c" if name.startswith("plan") else "#2563eb"
        marks.append(f'<circle cx="{x}" cy="{y}" r="5" fill="{color}"/><text x="{x + 9}" y="{y + 4}">{name}</text>')
    marks.append(f'<text x="{(width - 80) / 2}" y="{height - 4}" text-anchor="middle">bytes of the activations, stored</text>')
    marks.append('<text x="12" y="16">relative error of the gradients</text>')
    style = "font: 12px system-ui, sans-serif; fill: currentColor; background: white"
    return SVG(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" style="{style}">{"".join(marks)}</svg>')


plot(points)

# %% [markdown]
# A plan is code to paste:

# %%
print(plan.code)
assert plan.fits
plan
