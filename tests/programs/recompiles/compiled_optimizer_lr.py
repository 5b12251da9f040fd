"""The optimizer step is compiled and the learning rate is a float that is changed by hand."""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


@torch.compile(backend="eager")
def apply_gradients():
    optimizer.step()  # DX113


for epoch in range(4):
    model(torch.randn(8, 4)).pow(2).mean().backward()
    apply_gradients()
    optimizer.zero_grad(set_to_none=False)
    for group in optimizer.param_groups:
        group["lr"] *= 0.5
