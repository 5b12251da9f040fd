"""Train a latent world model from a replay buffer; a simulator outside of PyTorch answers queries in the middle of the loss."""

import numpy as np
import torch
import torch.nn as nn


class Simulator:
    """Stands for a physics engine with a C interface: bytes in, bytes out."""

    def rollout(self, state: bytes) -> bytes:
        x = np.frombuffer(state, dtype=np.float32)
        return (0.9 * x + 0.1 * np.sin(x)).astype(np.float32).tobytes()


class WorldModel(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.encode = nn.Linear(4, width)
        self.dynamics = nn.Linear(width, width)
        self.decode = nn.Linear(width, 4)

    def forward(self, x):
        return self.decode(torch.tanh(self.dynamics(torch.tanh(self.encode(x)))))


simulator = Simulator()


@torch.compiler.disable
def real_next(state):
    answer = simulator.rollout(state.numpy().tobytes())
    return torch.frombuffer(bytearray(answer), dtype=torch.float32).view(state.shape)


@torch.compile
def imagined_loss(model, state):
    first = model(state)
    target = real_next(first.detach())
    second = model(first)
    return (second - target).square().mean() + 0.1 * (first - state).square().mean()


def main():
    torch.manual_seed(0)
    model = WorldModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gen = torch.Generator().manual_seed(3)
    for _ in range(6):
        loss = imagined_loss(model, torch.randn(16, 4, generator=gen))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.2f}")


if __name__ == "__main__":
    main()
