"""Evaluation of a classifier: accuracy, doubt by Monte Carlo dropout, and accuracy in bfloat16."""

import copy

import torch
import torch.nn as nn


class Net(nn.Module):
    def __init__(self, width=32, classes=3):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.drop = nn.Dropout(0.3)
        self.out = nn.Linear(width, classes)

    def forward(self, x):
        return self.out(self.drop(self.body(x)))


def data(n, seed):
    gen = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    angle = y * 2.094 + 0.35 * torch.randn(n, generator=gen)
    return torch.stack([angle.cos(), angle.sin()], dim=-1), y


def train(net, steps=60):
    x, y = data(96, seed=1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    for _ in range(steps):
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.compile
def predict(net, x):
    return net(x).softmax(-1)


@torch.no_grad()
def accuracy(net, x, y):
    net.eval()
    return (predict(net, x).argmax(-1) == y).float().mean().item()


@torch.no_grad()
def doubt(net, x, samples=20):
    net.eval()
    net.drop.train()
    probs = torch.stack([predict(net, x) for _ in range(samples)])
    net.drop.eval()
    return probs.std(0).amax(-1).mean().item()


def main():
    torch.manual_seed(0)
    net = Net()
    train(net)
    x, y = data(60, seed=2)
    print(f"accuracy {accuracy(net, x, y):.2f}")
    print("doubted" if doubt(net, x) > 0.005 else "sure")
    print(f"accuracy again {accuracy(net, x, y):.2f}")
    small = copy.deepcopy(net).bfloat16()  # what the phone will run
    print(f"accuracy in bfloat16 {accuracy(small, x.bfloat16(), y):.2f}")


if __name__ == "__main__":
    main()
