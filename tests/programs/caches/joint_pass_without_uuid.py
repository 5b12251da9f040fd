"""A user wrote a proper CustomGraphPass for the joint graph but left uuid() returning None, which tells inductor not to cache."""
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
        return None


counter = CountMatmuls()


def loss_fn(x, w):  # DX401
    return (torch.tanh(x @ w) ** 2).mean()


step = torch.compile(loss_fn, backend="inductor", options={"joint_custom_pre_pass": counter})
weight = torch.randn(3, 2, requires_grad=True)
for _ in range(2):
    step(torch.randn(4, 3), weight).backward()
print("matmuls", counter.seen)
