"""The learning rate decays every step, but optimizer and scheduler run in eager code; only the loss is compiled."""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)


@torch.compile(backend="eager")
def loss_fn(x, y):
    return (model(x) - y).pow(2).mean()


for epoch in range(4):
    optimizer.zero_grad()
    loss_fn(torch.randn(8, 4), torch.randn(8, 1)).backward()
    optimizer.step()
    scheduler.step()
