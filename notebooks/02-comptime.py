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
# # Inside the trace
#
# torch.compile executes a model symbolically, line by line, before it runs. `dynx.comptime` runs your code while a line is traced,
# in code that you have written and in code that you have not. The example is GPT-2 from `transformers`, unmodified, with random
# weights.

# %%
import inspect

import torch
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.models.gpt2 import modeling_gpt2

import dynx
from dynx.comptime import comptime, debug, post_mortem, probe, timeline

torch.manual_seed(0)
config = GPT2Config(n_layer=2, n_embd=64, n_head=2, vocab_size=128, bos_token_id=0, eos_token_id=0)
model = GPT2LMHeadModel(config).eval()
tokens = torch.ones(1, 8, dtype=torch.long)

# %% [markdown]
# ## Stop at a line of library code
#
# Which shapes reach the feed-forward block? A probe on `GPT2MLP.forward` fires when the function is traced, once for each layer.

# %%
shapes = []

with probe(modeling_gpt2.GPT2MLP, do=lambda ctx: shapes.append(ctx.local("hidden_states").size())) as p, torch.no_grad():
    torch.compile(model, backend="eager")(tokens)

print(p)
print(shapes)
assert p.hits == config.n_layer

# %% [markdown]
# A probe can also change the trace. This one breaks the graph right before the block, in the first layer only:

# %%
graphs = []


def count(graph_module, example_inputs):
    graphs.append(len(graph_module.graph.nodes))
    return graph_module.forward


torch._dynamo.reset()
with probe(modeling_gpt2.GPT2MLP, when=lambda ctx: not graphs, do=lambda ctx: ctx.graph_break()), torch.no_grad():
    torch.compile(model, backend=count)(tokens)

print("nodes of each graph:", graphs)
assert len(graphs) > 1

# %% [markdown]
# ## The state at a graph break
#
# This model branches on its result, which breaks the graph. `post_mortem` records the state of the trace at each graph break: the
# line with the instruction underlined, the locals of every frame, the value stack, the graph so far and the guards.


# %%
class Head(torch.nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, tokens):
        logits = self.body(tokens).logits[:, -1]
        if logits.max() > 1:
            logits = logits / logits.max()
        return logits.softmax(-1)


torch._dynamo.reset()
with post_mortem() as pm, torch.no_grad():
    torch.compile(Head(model), backend="eager")(tokens)

pm

# %%
state = pm.breaks[0]
assert state.frames[0].stack == ("Tensor(bool, [])",)
state.frames[0].locals

# %% [markdown]
# ## Promise what torch cannot know
#
# A number read from a tensor is unknown until run time, so torch cannot decide a branch on it. `ctx.check` promises that a condition
# holds: this decides the branch, and the compiled code asserts it.

# %%
torch._dynamo.config.capture_scalar_outputs = True


@torch.compile(backend="eager", fullgraph=True)
def keep(lengths, x):
    longest = lengths.max().item()
    comptime(lambda ctx: ctx.check(ctx.local("longest") <= 8, "at most eight tokens"))
    if longest <= 8:
        return x * 2
    return x


print(keep(torch.tensor([3, 5]), torch.ones(2)))
try:
    keep(torch.tensor([3, 9]), torch.ones(2))
except RuntimeError as error:
    print(error)

# %% [markdown]
# ## The cost of each line
#
# `timeline` measures the trace itself. A click on a line shows the nodes it added and the guards it requested.

# %%
torch._dynamo.reset()
with timeline() as tl, torch.no_grad():
    torch.compile(model, backend="eager")(tokens)

tl

# %%
for line in tl.by_line()[:5]:
    print(f"{len(line.nodes):3} nodes {len(line.guards):3} guards  {line.location}")

# %% [markdown]
# ## Step through the trace, also back
#
# `debug` prompts for commands; here they come from a script. It sets a breakpoint in the attention of the second layer, inspects the
# state there, and goes back over the recorded instructions: nothing runs again.

# %%
torch._dynamo.reset()
script = """
b modeling_gpt2.py:{line} if self.layer_idx == 1
c
w
p query_states.shape
changes query_states
back 5
stack
rs
q
"""
lines = inspect.getsourcelines(modeling_gpt2.GPT2Attention.forward)
line = next(lines[1] + n for n, text in enumerate(lines[0]) if "shape_q = " in text)
with torch.no_grad():
    debug(model, script=script.format(line=line))(tokens)

# %% [markdown]
# All these tools restore torch afterwards: every attribute is the original object again. Observers did not change what was compiled.
# Everything that a callback logs is also in `dynx.watch()`:

# %%
torch._dynamo.reset()
with dynx.watch() as w, probe(modeling_gpt2.GPT2Attention, do=lambda ctx: ctx.log(layer=ctx.local("self"))), torch.no_grad():
    torch.compile(model, backend="eager")(tokens)

w.logs
