"""A program whose report has every kind of line; docs/screen.md explains them."""

import torch


@torch.compile(backend="aot_eager")
def scaled(x, factors):
    for factor in factors:
        x = torch.sin(x) * factor
    return x


@torch.compile(backend="aot_eager")
def logged(x):
    y = torch.relu(x)
    print("half way")
    return y.sum()


@torch.compile(backend="aot_eager")
def averaged(x):
    for _ in range(2):
        print("in a loop")
        x = x + x.mean()
    return x


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x * self.calls


@torch.compile(backend="aot_eager", fullgraph=True)
def whole(x):
    print("not allowed here")
    return x + 1


for n in (2, 3, 4):
    scaled(torch.ones(4), [2.0] * n)
logged(torch.ones(4))
averaged(torch.ones(4))
counter = torch.compile(Counter(), backend="aot_eager")
for _ in range(10):
    counter(torch.ones(4))
try:
    whole(torch.ones(4))
except torch._dynamo.exc.Unsupported:
    print("whole() does not compile")
