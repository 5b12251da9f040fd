"""The same block, but every call is made under torch.autocast outside of the compiled code; nothing of it is in the graph, both caches work."""
import os
import tempfile

os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()
import torch
from torch import nn


class MixedBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 8)
        self.down = nn.Linear(8, 4)

    def forward(self, x):
        y = self.down(torch.relu(self.up(x)))
        return x + y.float()


torch.manual_seed(0)
block = MixedBlock()
fast = torch.compile(block, backend="inductor")
for _ in range(3):
    block.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = fast(torch.randn(2, 4))
    out.sum().backward()
print(block.up.weight.grad.shape)
