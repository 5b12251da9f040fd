"""A helper is put into the graph as it is with allow_in_graph; the AOTAutograd cache knows no such function."""
import os
import tempfile

os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()
import torch


@torch._dynamo.allow_in_graph
def mystery(x):
    return torch.sin(x) * 0.5


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(4))

    def forward(self, x):  # DX402
        return mystery(x) * self.scale


model = torch.compile(Model(), backend="inductor")
with torch.no_grad():
    model(torch.ones(4))
