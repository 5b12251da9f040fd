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
# # CUDA graphs with dynx
#
# A CUDA graph records kernel launches, so that one call from the CPU replays all of them. The difficulty is memory: a replay
# reads and writes the same addresses as the captured run, whatever tensors the current call passes. `dynx.cudagraphs` captures
# compiled graphs, functions and whole training steps. It reports how each input gets to the address that the graph reads, and why
# a graph cannot be captured.
#
# We call one captured CUDA graph a *recording*. This notebook uses the GPU if there is one. Otherwise it uses dynx's emulator,
# which records and replays operators on the CPU and raises an error where CUDA would.

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
        q, k, v = (heads.unflatten(-1, (self.heads, -1)).transpose(1, 2) for heads in self.qkv(self.norm(x)).chunk(3, -1))
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(attended.transpose(1, 2).flatten(2))


model = nn.Sequential(Block(), Block()).to(DEVICE)
x = torch.randn(2, 16, 64, device=DEVICE)

# %% [markdown]
# ## How each input reaches a replay
#
# `cudagraphs.explain` compiles a function, calls it three times, and reports for each graph which inputs it has, how they are
# passed to a replay, and what could not be captured.

# %%
with torch.no_grad():
    report = cudagraphs.explain(lambda x: model(x), x, config=CONFIG)
report

# %% [markdown]
# Parameters and buffers are *static* inputs: the graph reads them at their own addresses. (torch's `backend="cudagraphs"` copies
# them on every call.) The argument `x` is a *dynamic* input: it may be another tensor on every call, so it is copied to the
# address that the graph reads.
#
# With `inputs="patch"` nothing is copied: before a replay, dynx writes the address of the current argument into the parameters of
# the captured kernels. After the capture it checks that such a replay gives the right result, and falls back to copies if not.

# %%
patched = cudagraphs.Config(runtime=CONFIG.runtime, inputs="patch")
try:
    with torch.no_grad():
        print(cudagraphs.explain(lambda x: model(x), x, config=patched).graphs[0].copies, "copies per call")
except Exception as error:  # on a GPU, patching needs the package cuda-bindings
    print(error)

# %% [markdown]
# ## What cannot be captured
#
# An operator that makes the CPU wait for a value on the GPU cannot be captured. Here the number of selected elements, and with it
# the size of `positive`, is known only after the comparison has run. dynx splits the graph around such operators and captures the
# pieces before and after.


# %%
def clipped(x):
    y = model(x)
    positive = y[y > 0]  # its size depends on the values of y
    return model(y / positive.mean())


with torch.no_grad(), torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
    report = cudagraphs.explain(clipped, x, config=CONFIG)
for piece in report.graphs[0].plan.pieces:  # in execution order
    print(piece.launches, "launches:", piece.why_uncaptured or "captured")
for skip in report.graphs[0].plan.skips:
    print(f"line {skip.location.line}: {skip.reason}\n  {skip.advice}")

# %% [markdown]
# ## Two forward passes before the backward passes
#
# A forward pass saves tensors for its backward pass in the memory of its recording. If the model is called again before that
# backward pass, replaying the same recording would overwrite these tensors. dynx therefore makes another recording, with memory
# of its own, for the second call. We compare the gradients with those of an uncompiled copy of the model.

# %%
cudagraphs.reset()
run = torch.compile(model, backend=cudagraphs.backend(CONFIG))
reference = copy.deepcopy(model)
for _ in range(4):
    for call, module in ((run, model), (reference, reference)):
        module.zero_grad()
        losses = [call(batch).square().mean() for batch in (x, x + 1)]  # two forward passes
        for loss in losses:
            loss.backward()
for param, expected in zip(model.parameters(), reference.parameters(), strict=True):
    torch.testing.assert_close(param.grad, expected.grad)
cudagraphs.stats()

# %% [markdown]
# ## A whole training step
#
# `train_step` captures the forward pass, the backward pass, gradient clipping and the optimizer step in one recording. The first
# call runs its step without capture, the second call captures it, and later calls replay it. Each call is a real step of the
# training: there are no separate warm-up steps.

# %%
optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(1e-2, device=DEVICE), fused=True, capturable=DEVICE == "cuda")
step = cudagraphs.train_step(
    lambda x: (model(x) - 1).square().mean(), model.parameters(), x, optimizer=optimizer, clip_grad_norm=1.0, config=CONFIG
)
losses = [step(x).item() for _ in range(20)]
print(f"{losses[0]:.3f} … {losses[-1]:.3f}")

# %% [markdown]
# A replay runs kernels only, so it would silently skip Python code such as a gradient hook. `train_step` raises `UsageError` in
# such a case, and names the parameter.

# %%
model[0].qkv.weight.register_hook(lambda gradient: gradient * 2)
try:
    cudagraphs.train_step(lambda x: model(x).mean(), model.named_parameters(), config=CONFIG)
except UsageError as error:
    print(error)

# %% [markdown]
# ## Capture a module without torch.compile
#
# `fast_path` records and replays a module for inference, without Dynamo and AOTAutograd. On each call it checks that the module
# is unchanged. Here we replace a parameter: its new address makes the recording invalid, so dynx records the module again.

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

# %% [markdown]
# ## Serve a model token by token
#
# The module keeps the cache of keys and values. What changes from call to call is a tensor: the tokens, the position of the first
# one, and the index of the last. Prompts are padded to eight tokens; the mask hides the padding until a later token has written
# over it. So two recordings, one for prompts and one for single tokens, serve every request.

# %%
from transformers import AutoModelForCausalLM, LlamaConfig, StaticCache

cudagraphs.reset()
settings = LlamaConfig(
    vocab_size=100, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, eos_token_id=None
)
llama = AutoModelForCausalLM.from_config(settings).to(DEVICE).eval()


class Decoder(nn.Module):
    """Returns the token that follows the one at index `last` of `tokens`, whose first one is at position `start`."""

    def __init__(self, model, size=32):
        super().__init__()
        self.model, self.size = model, size
        self.cache = StaticCache(config=model.config, max_cache_len=size)

    def forward(self, tokens, start, last):
        for layer in self.cache.layers:
            layer.cumulative_length.copy_(start)  # where `update` writes
        positions = start + torch.arange(tokens.shape[1], device=tokens.device)
        mask = torch.arange(self.size, device=tokens.device) <= positions[:, None]
        out = self.model(tokens, position_ids=positions[None], attention_mask=mask[None, None], past_key_values=self.cache)
        return out.logits[:, last].argmax(-1)


run = cudagraphs.fast_path(Decoder(llama), config=CONFIG)


@torch.no_grad()
def serve(prompt, new_tokens=8):
    tokens = torch.tensor([prompt + [0] * (8 - len(prompt))], device=DEVICE)
    served = [run(tokens, torch.tensor(0, device=DEVICE), torch.tensor([len(prompt) - 1], device=DEVICE))]
    for position in range(len(prompt), len(prompt) + new_tokens - 1):
        served.append(run(served[-1], torch.tensor(position, device=DEVICE), torch.tensor([0], device=DEVICE)))
    return torch.cat(served, 1)


for prompt in ([5, 9, 2], [7, 7], [1, 2, 3, 4, 5, 6], [5, 9, 2]):
    expected = llama.generate(
        torch.tensor([prompt], device=DEVICE), max_new_tokens=8, do_sample=False, pad_token_id=0, disable_compile=True
    )
    assert serve(prompt).equal(expected[:, len(prompt) :])
print(len(run.recordings), "recordings,", cudagraphs.stats().replays, "replays")
