"""The choice depends on the value of a tensor, but it is written with torch.cond and so stays in the graph."""
import torch
from torch import nn


class Router(nn.Module):
    def __init__(self):
        super().__init__()
        self.cheap = nn.Linear(4, 4)
        self.costly = nn.Linear(4, 4)

    def forward(self, x):
        def easy(x):
            return self.cheap(x).sin()

        def hard(x):
            return self.costly(x).cos()

        return torch.cond(x.norm() > 2, easy, hard, (x,))


torch.manual_seed(0)
router = torch.compile(Router(), backend="eager")
for scale in (0.1, 1.0, 10.0):
    router(torch.randn(2, 4) * scale)
