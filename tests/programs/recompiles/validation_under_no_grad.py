"""The training loop and the validation under no_grad share one compiled loss function."""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 1)


@torch.compile(backend="eager")
def loss_fn(inputs, targets):
    return nn.functional.mse_loss(model(inputs), targets)


def validate(inputs, targets):
    with torch.no_grad():
        return loss_fn(inputs, targets)  # DX108


for _ in range(2):
    loss_fn(torch.randn(3, 4), torch.randn(3, 1)).backward()
validate(torch.randn(3, 4), torch.randn(3, 1))
