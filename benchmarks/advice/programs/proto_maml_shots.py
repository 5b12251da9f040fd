"""Episodes with 4 to 8 shots for an encoder with prototypes as its head, adapted by an inner loop (first order)."""
import torch
from torch import nn


class Episode:
    def __init__(self, ways, shots):
        centres = 2 * torch.randn(ways, 10)
        self.ways = ways
        self.support = (centres[:, None] + torch.randn(ways, shots, 10)).flatten(0, 1)
        self.query = (centres[:, None] + torch.randn(ways, shots, 10)).flatten(0, 1)
        self.support_y = torch.arange(ways).repeat_interleave(shots)
        self.query_y = torch.arange(ways).repeat_interleave(shots)


def init_params(width=24):
    return {
        "w1": nn.Parameter(0.3 * torch.randn(width, 10)),
        "b1": nn.Parameter(torch.zeros(width)),
        "w2": nn.Parameter(0.3 * torch.randn(width, width)),
        "b2": nn.Parameter(torch.zeros(width)),
    }


def encode(params, x):
    hidden = torch.tanh(nn.functional.linear(x, params["w1"], params["b1"]))
    return nn.functional.linear(hidden, params["w2"], params["b2"])


def prototypes(z, y, ways):
    return torch.stack([z[y == way].mean(0) for way in range(ways)])


@torch.compile(backend="eager")
def episode_loss(params, x, y, protos):
    z = encode(params, x)
    distance = (z[:, None] - protos).pow(2).sum(-1)
    return nn.functional.cross_entropy(-distance, y)


def adapt(params, episode, steps, lr):
    protos = prototypes(encode(params, episode.support), episode.support_y, episode.ways)
    for _ in range(steps):
        loss = episode_loss(params, episode.support, episode.support_y, protos.detach())
        grads = torch.autograd.grad(loss, list(params.values()))
        params = {name: value - lr * grad for (name, value), grad in zip(params.items(), grads)}
    return params, protos


def main():
    torch.manual_seed(1)
    params = init_params()
    optimizer = torch.optim.Adam(params.values(), lr=5e-3)
    for number, shots in enumerate([4, 4, 6, 8, 5]):
        episode = Episode(5, shots)
        fast, protos = adapt(params, episode, steps=2, lr=0.05)
        loss = episode_loss(fast, episode.query, episode.query_y, protos)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"episode {number} shots {shots} query loss {loss.item():.2f}")


if __name__ == "__main__":
    main()
