"""Fine-tune a small residual network on images: activation statistics by hooks, channels_last batches, evaluation after each epoch."""

import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x):
        return x + F.relu(self.norm(self.conv(x)))


class Net(nn.Module):
    def __init__(self, width=8, classes=5):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class Watch:
    """Records dead activations and when they were seen, for a plot."""

    def __init__(self):
        self.seen = []
        self.dead = []

    def hook(self, module, args, output):
        fraction = (output <= 0).float().mean()
        self.dead.append(fraction.detach())
        self.seen.append(time.perf_counter())


def images(count, seed, channels_last):
    gen = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 3, 12, 12, generator=gen)
    y = torch.randint(0, 5, (count,), generator=gen)
    return (x.to(memory_format=torch.channels_last) if channels_last else x), y


def main():
    torch.manual_seed(0)
    net = Net()
    watch = Watch()
    net.blocks.register_forward_hook(watch.hook)
    compiled = torch.compile(net, backend="aot_eager")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(2):
        net.train()
        for step in range(2):
            x, y = images(8, 10 * epoch + step, channels_last=True)
            watch.dead.clear(), watch.seen.clear()
            loss = F.cross_entropy(compiled(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        net.eval()
        with torch.no_grad():
            x, y = images(8, 99, channels_last=False)
            watch.dead.clear(), watch.seen.clear()
            accuracy = (compiled(x).argmax(1) == y).float().mean()
    print(f"loss {loss.item():.1f} accuracy {accuracy.item():.2f} dead {watch.dead[0].item():.1f}")


if __name__ == "__main__":
    main()
