"""Models of three classes inherit one `forward`; each is compiled by itself."""

import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x).relu()  # DX120


class TextEncoder(Encoder):
    pass


class ImageEncoder(Encoder):
    pass


for encoder in (Encoder(), TextEncoder(), ImageEncoder()):
    encoder.compile(backend="eager")
    encoder(torch.ones(4))
