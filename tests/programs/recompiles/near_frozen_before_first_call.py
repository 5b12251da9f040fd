"""The backbone is frozen once, before the first compiled call, and the optimizer works outside: no tensor changes its flags."""
import torch
from torch import nn


class Finetune(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Linear(4, 6)
        self.head = nn.Linear(6, 2)

    def forward(self, x):
        return self.head(torch.relu(self.backbone(x)))


torch.manual_seed(0)
model = Finetune()
for parameter in model.backbone.parameters():
    parameter.requires_grad_(False)
compiled = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    compiled(torch.randn(3, 4)).square().mean().backward()
    optimizer.step()
