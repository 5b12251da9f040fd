"""Twenty different lengths, but compiled with dynamic=True from the start, so a single version serves them all."""
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 4)
        self.mix = nn.Linear(4, 4)

    def forward(self, tokens):
        embedded = self.embed(tokens)
        return self.mix(embedded).mean(dim=0)


torch.manual_seed(0)
encode = torch.compile(Encoder(), backend="eager", dynamic=True)
for length in range(3, 23):
    encode(torch.randint(0, 50, (length,)))
