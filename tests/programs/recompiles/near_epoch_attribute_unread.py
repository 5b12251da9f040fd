"""The int attribute `epoch` changes, but only the eager checkpoint() method reads it, never the compiled forward."""
import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 6)
        self.out = nn.Linear(6, 3)
        self.epoch = 0

    def forward(self, tokens):
        return self.out(self.embed(tokens)).argmax(-1)

    def checkpoint(self):
        return {"epoch": self.epoch, "state": self.state_dict()}


torch.manual_seed(0)
tagger = Tagger()
run = torch.compile(tagger, backend="eager")
saved = []
for tagger.epoch in range(5):
    run(torch.randint(0, 20, (2, 7)))
    saved.append(tagger.checkpoint()["epoch"])
