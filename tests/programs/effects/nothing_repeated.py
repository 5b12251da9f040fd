"""A setting meant for export is left on: compiled code repeats no mutation at all."""
import torch

torch._dynamo.config.replay_side_effects = False
compiled = torch.compile(backend="eager")
total = 0


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):  # DX803
        self.calls += 1
        return x * 2


@compiled
def appended(steps, x):  # DX803
    steps.append(1)
    return x + 1


@compiled
def counted(x):  # DX803
    global total
    total += 1
    return x + 2


@compiled
def set_of(seen, names, x):  # DX803
    seen.add(1)
    names["a"] = 2
    return x + 3


@compiled
def only_read(steps, x):
    return x + len(steps)


x = torch.ones(2)
appended([], x)
counted(x)
set_of(set(), {}, x)
only_read([1], x)
torch.compile(Model(), backend="eager")(x)
