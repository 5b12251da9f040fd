"""A user put torch.autocast inside forward; the enter/exit calls land in the graph and AOTAutograd does not know them as cacheable."""
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

    def forward(self, x):  # DX402 [torch>=2.13,<2.15]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.down(torch.relu(self.up(x)))
        return x + y.float()


torch.manual_seed(0)
block = MixedBlock()
fast = torch.compile(block, backend="inductor")
for _ in range(3):
    block.zero_grad()
    fast(torch.randn(2, 4)).sum().backward()
print(block.up.weight.grad.shape)
