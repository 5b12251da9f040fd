"""The same scorer: freezing is patched only around torch.compile, which compiles nothing yet; at the first call it is off again and both caches are used."""
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

    def forward(self, x):
        x = torch.relu(self.hidden(x))
        return self.head(x).softmax(-1)


torch.manual_seed(0)
model = Scorer().eval()
with torch._inductor.config.patch(freezing=True):
    served = torch.compile(model, backend="inductor")
with torch.no_grad():
    for _ in range(3):
        scores = served(torch.randn(4, 6))
print(tuple(scores.shape))
