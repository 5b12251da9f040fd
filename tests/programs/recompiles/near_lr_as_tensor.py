"""The compiled optimizer has its learning rate in a tensor, which changes in place without any guard."""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 1)
lr = torch.tensor(0.1)
optimizer = torch.optim.SGD(model.parameters(), lr=lr)


@torch.compile(backend="eager")
def apply_gradients():
    optimizer.step()


for epoch in range(4):
    model(torch.randn(8, 4)).pow(2).mean().backward()
    apply_gradients()
    optimizer.zero_grad(set_to_none=False)
    lr.mul_(0.5)
