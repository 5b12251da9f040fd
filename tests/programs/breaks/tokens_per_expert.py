"""A mixture of experts picks the tokens of each expert with nonzero, whose result has as many rows as the router says."""
import torch


class Experts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.router = torch.nn.Linear(4, 2)
        self.experts = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2))

    def forward(self, x):
        choice = self.router(x).argmax(-1)
        out = torch.zeros_like(x)
        rows = (choice == 0).nonzero()  # DX209
        return out.index_add(0, rows.flatten(), self.experts[0](x[rows.flatten()]))


torch.manual_seed(0)
model = torch.compile(Experts(), backend="eager")
model(torch.randn(8, 4))
