"""Ten sentence lengths meet dynamic=False; after eight versions the encoder runs eagerly."""
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 4)
        self.mix = nn.Linear(4, 4)

    def forward(self, tokens):
        embedded = self.embed(tokens)  # DX301
        return self.mix(embedded).mean(dim=0)


torch.manual_seed(0)
encode = torch.compile(Encoder(), backend="eager", dynamic=False)
for length in range(3, 13):
    encode(torch.randint(0, 50, (length,)))
