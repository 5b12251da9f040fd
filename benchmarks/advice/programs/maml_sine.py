"""Few-shot sine regression with MAML: torch.func for the inner loop, evaluation with more adaptation steps than training."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, vmap


class SineTasks:
    def __init__(self, seed, shots=10):
        self.rng = torch.Generator().manual_seed(seed)
        self.shots = shots

    def sample(self, tasks):
        amplitude = torch.rand(tasks, 1, 1, generator=self.rng) * 4 + 0.5
        phase = torch.rand(tasks, 1, 1, generator=self.rng) * math.pi
        x = torch.rand(tasks, 2 * self.shots, 1, generator=self.rng) * 10 - 5
        y = amplitude * torch.sin(x + phase)
        return x[:, : self.shots], y[:, : self.shots], x[:, self.shots :], y[:, self.shots :]


class MAML:
    def __init__(self, net, inner_lr=0.02):
        self.net = net
        self.inner_lr = inner_lr
        self.query_losses = torch.compile(self._query_losses, backend="eager")

    def loss(self, params, x, y):
        return F.mse_loss(functional_call(self.net, params, (x,)), y)

    def adapt(self, params, x, y, inner_steps):
        for _ in range(inner_steps):
            grads = grad(self.loss)(params, x, y)
            params = {name: p - self.inner_lr * grads[name] for name, p in params.items()}
        return params

    def _query_losses(self, params, support_x, support_y, query_x, query_y, inner_steps):
        def task(sx, sy, qx, qy):
            return self.loss(self.adapt(params, sx, sy, inner_steps), qx, qy)

        return vmap(task)(support_x, support_y, query_x, query_y)


def evaluate(maml, params, tasks):
    curve = []
    batch = tasks.sample(8)
    with torch.no_grad():
        for inner_steps in (1, 2, 3):
            curve.append(maml.query_losses(params, *batch, inner_steps).mean().item())
    return curve


def main():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 1))
    params = dict(net.named_parameters())
    maml = MAML(net)
    optimizer = torch.optim.Adam(params.values(), lr=3e-3)
    tasks = SineTasks(seed=1)
    for iteration in range(20):
        loss = maml.query_losses(params, *tasks.sample(8), 1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if iteration % 10 == 9:
            print(f"iteration {iteration + 1} query loss {loss.item():.3f}")
    print("adaptation curve", " ".join(f"{value:.3f}" for value in evaluate(maml, params, SineTasks(seed=2))))


if __name__ == "__main__":
    main()
