"""A user turned on inductor's freezing for CPU inference; the weights become constants of the graph, so neither cache can be used."""
import os
import tempfile

os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()
import torch
from torch import nn


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(6, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, x):  # DX401
        x = torch.relu(self.hidden(x))
        return self.head(x).softmax(-1)


torch._inductor.config.freezing = True
torch.manual_seed(0)
model = Scorer().eval()
served = torch.compile(model, backend="inductor")
with torch.no_grad():
    for _ in range(3):
        scores = served(torch.randn(4, 6))
print(tuple(scores.shape))
