"""The model that contains modules of several classes is compiled as a whole."""

import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x).relu()


class TextEncoder(Encoder):
    pass


class ImageEncoder(Encoder):
    pass


model = torch.compile(nn.Sequential(Encoder(), TextEncoder(), ImageEncoder()), backend="eager")
for _ in range(2):
    model(torch.ones(4))
