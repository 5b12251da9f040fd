"""Every expert sees every token and the router's weights select: sizes never depend on data."""
import torch


class Experts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.router = torch.nn.Linear(4, 2)
        self.experts = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2))

    def forward(self, x):
        choice = torch.nn.functional.one_hot(self.router(x).argmax(-1), 2)
        return sum(expert(x) * choice[:, i : i + 1] for i, expert in enumerate(self.experts))


torch.manual_seed(0)
model = torch.compile(Experts(), backend="eager")
model(torch.randn(8, 4))
