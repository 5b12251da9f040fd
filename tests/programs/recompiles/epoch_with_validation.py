"""A whole epoch: the last training batch is smaller, and then the model is switched to eval for the validation."""
import torch
from torch import nn


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 8)
        self.drop = nn.Dropout(0.1)
        self.outer = nn.Linear(8, 1)

    def forward(self, x):
        h = self.inner(x)  # DX102
        h = self.drop(h.tanh())  # DX107
        return self.outer(h).squeeze(-1)


torch.manual_seed(0)
model = Regressor()
compiled = torch.compile(model, backend="eager")
optimizer = torch.optim.Adam(model.parameters())
for size in (8, 8, 5):
    optimizer.zero_grad()
    compiled(torch.randn(size, 3)).pow(2).mean().backward()
    optimizer.step()
model.eval()
val_loss = compiled(torch.randn(8, 3)).pow(2).mean()
