"""The same joint-graph pass with a real uuid(), next to a plain function as pre-grad pass (it runs before the lookup): no cache is bypassed."""
import os
import tempfile

os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()
import torch
from torch._inductor.custom_graph_pass import CustomGraphPass


class CountMatmuls(CustomGraphPass):
    def __init__(self):
        self.seen = 0

    def __call__(self, graph):
        self.seen += sum(n.target is torch.ops.aten.mm.default for n in graph.nodes)

    def uuid(self):
        return "count-matmuls-1"


def look_at_graph(graph):
    assert len(graph.nodes) > 0


counter = CountMatmuls()
PASSES = {"joint_custom_pre_pass": counter, "pre_grad_custom_pass": look_at_graph}


def loss_fn(x, w):
    return (torch.tanh(x @ w) ** 2).mean()


step = torch.compile(loss_fn, backend="inductor", options=PASSES)
weight = torch.randn(3, 2, requires_grad=True)
for _ in range(2):
    step(torch.randn(4, 3), weight).backward()
print("matmuls", counter.seen)
