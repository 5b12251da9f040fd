"""Deep equilibrium layer solved with Anderson acceleration over a short history of iterates."""

import torch
from torch import nn


class Anderson:
    def __init__(self, window=5, ridge=1e-9, beta=1.0):
        self.window = window
        self.ridge = ridge
        self.beta = beta
        self.inputs = []
        self.outputs = []

    def reset(self):
        self.inputs.clear()
        self.outputs.clear()

    def push(self, x, fx):
        self.inputs.append(x)
        self.outputs.append(fx)
        if len(self.inputs) > self.window:
            self.inputs.pop(0)
            self.outputs.pop(0)

    def mix(self):
        residuals = torch.stack(self.outputs) - torch.stack(self.inputs)
        flat = residuals.flatten(1)
        gram = flat @ flat.T
        gram = gram / gram.trace() + self.ridge * torch.eye(gram.shape[0], dtype=gram.dtype)
        alpha = torch.linalg.solve(gram, torch.ones(gram.shape[0], dtype=gram.dtype))
        alpha = alpha / alpha.sum()
        return torch.tensordot(alpha, self.beta * torch.stack(self.outputs) + (1 - self.beta) * torch.stack(self.inputs), dims=1)


class Equilibrium(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.recur = nn.Linear(dim, dim)
        self.inject = nn.Linear(dim, dim)
        nn.init.orthogonal_(self.recur.weight, gain=0.8)

    def forward(self, z, x):
        return torch.tanh(self.recur(z) + self.inject(x))


@torch.no_grad()
def solve(layer, x, accelerator, tol=1e-5, max_iterations=40):
    accelerator.reset()
    z = torch.zeros_like(x)
    mix = torch.compile(accelerator.mix, backend="eager")
    for iteration in range(max_iterations):
        fz = layer(z, x)
        error = (fz - z).norm() / fz.norm()
        if error < tol:
            break
        accelerator.push(z, fz)
        z = mix()
    return z, iteration, error


def main():
    torch.manual_seed(0)
    layer = Equilibrium(12).double()
    accelerator = Anderson(window=5)
    for problem in range(3):
        x = torch.randn(4, 12, dtype=torch.float64)
        z, iterations, error = solve(layer, x, accelerator)
        print(f"problem {problem}: {iterations} iterations, converged {bool(error < 1e-5)}, |z| {z.norm().item():.5f}")


if __name__ == "__main__":
    main()
