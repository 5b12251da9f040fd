"""Hamiltonian Monte Carlo for a Bayesian logistic regression; trajectory and acceptance are one compiled function."""

import torch
import torch.nn.functional as F

LEAPS = 3


def data(n=120, d=4):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(n, d, generator=g, dtype=torch.float64)
    truth = torch.tensor([1.0, -2.0, 0.5, 0.0], dtype=torch.float64)
    y = (torch.rand(n, generator=g, dtype=torch.float64) < torch.sigmoid(x @ truth)).double()
    return x, y


def potential(w, x, y, prior_precision):
    """Negative log posterior up to a constant."""
    return F.binary_cross_entropy_with_logits(x @ w, y, reduction="sum") + 0.5 * prior_precision * w.square().sum()


grad_potential = torch.func.grad(potential)


@torch.compile(fullgraph=True)
def transition(w, momentum, log_u, x, y, step_size, prior_precision):
    p = momentum - 0.5 * step_size * grad_potential(w, x, y, prior_precision)
    q = w
    for leap in range(LEAPS):
        q = q + step_size * p
        scale = 0.5 if leap == LEAPS - 1 else 1.0
        p = p - scale * step_size * grad_potential(q, x, y, prior_precision)
    before = potential(w, x, y, prior_precision) + 0.5 * momentum.square().sum()
    after = potential(q, x, y, prior_precision) + 0.5 * p.square().sum()
    accepted = log_u < before - after
    return torch.where(accepted, q, w), accepted


def main():
    x, y = data()
    g = torch.Generator().manual_seed(7)
    w = torch.zeros(4, dtype=torch.float64)
    step_size = torch.tensor(0.02, dtype=torch.float64)
    prior = torch.tensor(1.0, dtype=torch.float64)
    draws, rate = [], torch.zeros((), dtype=torch.float64)
    for number in range(120):
        momentum = torch.randn(4, generator=g, dtype=torch.float64)
        log_u = torch.rand((), generator=g, dtype=torch.float64).log()
        w, accepted = transition(w, momentum, log_u, x, y, step_size, prior)
        if number < 50:
            # crude adaptation of the step size towards 80% acceptance, in tensors
            step_size = step_size * torch.where(accepted, 1.02, 0.92)
        else:
            draws.append(w)
            rate += accepted
    posterior = torch.stack(draws)
    print("accepted", f"{float(rate) / len(draws):.2f}")
    print("mean", [f"{v:+.2f}" for v in posterior.mean(0).tolist()])
    print("sd", [f"{v:.2f}" for v in posterior.std(0).tolist()])


if __name__ == "__main__":
    main()
