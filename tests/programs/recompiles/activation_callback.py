"""Two different activation functions are handed to the same compiled feed-forward."""
import torch


def swish(x):
    return x * torch.sigmoid(x)


def squared_relu(x):
    return torch.relu(x).square()


def feed_forward(x, up, down, activation):
    h = x @ up
    h = activation(h)  # DX111
    return h @ down


torch.manual_seed(0)
compiled = torch.compile(feed_forward, backend="eager")
up, down = torch.randn(4, 8), torch.randn(8, 4)
for activation in (swish, squared_relu):
    compiled(torch.randn(3, 4), up, down, activation)
