"""A number that chooses a module: the advice is to pass the module, never to make a tensor of the modules; and it helps."""

from __future__ import annotations

import torch

import dynx


class Experts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.members = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))

    def forward(self, x, member):
        return self.members[member](x).sum()

    def passed(self, x, module):
        return module(x).sum()


def watched(function, calls):
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="eager")
    with dynx.watch() as watch:
        for call in calls:
            compiled(torch.ones(2, 4), call)
    return watch


def test_passing_the_module_saves_the_recompiles():
    model = Experts()
    watch = watched(model, range(3))
    (finding,) = watch.findings
    assert "pass self.members[member] instead" in finding.advice
    assert "tensor" not in finding.advice
    assert len(watch.recompiles) == 2
    assert not watched(model.passed, model.members).recompiles
