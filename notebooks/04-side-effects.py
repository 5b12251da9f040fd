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
# # Does compiled code leave what eager code leaves?
#
# The graph of a compiled function computes tensors. Everything else that the function changes, such as a list, a counter or a cache,
# is repeated by bytecode that Dynamo writes after the graph; for some containers it writes none, and nothing raises. This notebook
# finds such a loss, shows its line, and tries a rewrite.

# %%
from collections import OrderedDict

import torch
from torch import nn

import dynx


class Retriever(nn.Module):
    """Looks up a row by key, with a cache whose most recently used keys are last."""

    def __init__(self):
        super().__init__()
        self.table = nn.Linear(8, 8)
        self.rows = OrderedDict(a=0, b=1, c=2)
        self.hits = 0

    def forward(self, x, key):
        self.hits += 1
        self.rows.move_to_end(key)
        return self.table(x)[self.rows[key]]


x = torch.ones(4, 8)

# %% [markdown]
# ## Compare
#
# Both sides run in copies of the module, of its cache and of all else that `forward` reads; this notebook's objects stay as they are.

# %%
model = Retriever()
report = dynx.check(model, x, "a")
assert not report.ok
report

# %%
assert list(model.rows) == ["a", "b", "c"]
[(diff.path, str(diff.location)) for diff in report.diffs]

# %% [markdown]
# ## What Dynamo noted
#
# `dynx.watch()` lists each mutation of a compiled graph, before and after, and whether compiled code repeats it.

# %%
torch._dynamo.reset()
with dynx.watch() as watch:
    torch.compile(Retriever(), backend="eager")(x, "a")
(frame,) = watch.side_effects
assert [effect.source for effect in frame.dropped] == ["L['self'].rows"]
frame

# %% [markdown]
# ## Rewrite, and compare again
#
# The [rule](../docs/rules/DX801.md) says: `d[key] = d.pop(key)`. Calls with other keys and sizes find guards that are missing.


# %%
class Rewritten(Retriever):
    def forward(self, x, key):
        self.hits += 1
        self.rows[key] = self.rows.pop(key)
        return self.table(x)[self.rows[key]]


report = dynx.check(Rewritten(), x, "a", inputs=[(torch.ones(6, 8), "b"), (x, "c")])
report.assert_ok()
report

# %% [markdown]
# ## At which stage numbers begin to differ
#
# A backend of our own rounds one operator: `stage` names the part of the compilation, and `bisect=True` the node and its line.


# %%
def rounded_tanh(graph, inputs):
    def run(*args):
        return graph(*args)

    for node in graph.graph.nodes:
        if node.target in ("tanh", torch.tanh):
            with graph.graph.inserting_after(node):
                low = graph.graph.call_method("half", (node,))
            with graph.graph.inserting_after(low):
                high = graph.graph.call_method("float", (low,))
            node.replace_all_uses_with(high, delete_user_cb=lambda user, low=low: user is not low)
    graph.recompile()
    return run


def forward(x):
    y = x.sin() + 1
    y = y.tanh()
    return y * 2


report = dynx.check(forward, torch.linspace(0, 3, 64), backend=rounded_tanh, bisect=True)
assert report.stage == "rounded_tanh"
assert "tanh" in report.node
report
