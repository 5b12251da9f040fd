"""Trainer with pluggable losses (lambdas), phases (Enum) and autocast evaluation."""
import enum

import torch
from torch import nn


class Phase(enum.Enum):
    TRAIN = "train"
    VALID = "valid"


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(10, 10)

    def forward(self, x):
        return torch.tanh(self.lin(x))


LOSSES = {
    "l2": lambda out, y: (out - y).pow(2).mean(),
    "l1": lambda out, y: (out - y).abs().mean(),
}


class Trainer:
    def __init__(self, model):
        self.model = model
        self.run = torch.compile(self._run, backend="eager", fullgraph=True)
        self.infer = torch.compile(lambda m, x: m(x) * 2, backend="eager")
        self.finish = torch.compile(self._finish, backend="eager")
        self.history = []

    def _run(self, x, y, loss_fn):
        out = self.model(x)
        return loss_fn(out, y)  # DX111

    def _finish(self, out, phase):
        if phase is Phase.VALID:  # DX110
            out = out.detach()
        return out.float().mean()

    def fit(self, x, y):
        opt = torch.optim.SGD(self.model.parameters(), lr=0.1)
        for name, fn in LOSSES.items():
            for _ in range(3):
                loss = self.run(x, y, fn)
                opt.zero_grad()
                loss.backward()
                opt.step()
            self.history.append((Phase.TRAIN.value, name, loss.item()))

    def predict(self, x, amp):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
            return self.infer(self.model, x)  # DX109


def main():
    torch.manual_seed(0)
    t = Trainer(Head())
    x, y = torch.randn(16, 10), torch.randn(16, 10)
    t.fit(x, y)
    for amp in (False, True):
        print(t.predict(x, amp).dtype)
    for phase in Phase:
        print(phase.value, t.finish(y, phase).item())


main()
