"""Bayes by backprop on a noisy sine: every weight has a Normal posterior, and the KL term is weighted per mini-batch."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Normal, kl_divergence


class BayesLinear(nn.Module):
    def __init__(self, inputs, outputs, prior_std=1.0):
        super().__init__()
        self.mean = nn.Parameter(torch.randn(outputs, inputs + 1) / (inputs + 1) ** 0.5)
        self.rho = nn.Parameter(torch.full((outputs, inputs + 1), -4.0))
        self.register_buffer("prior_loc", torch.zeros(outputs, inputs + 1))
        self.register_buffer("prior_scale", torch.full((outputs, inputs + 1), prior_std))

    @property
    def posterior(self):
        return Normal(self.mean, F.softplus(self.rho))

    @property
    def prior(self):
        return Normal(self.prior_loc, self.prior_scale)

    def forward(self, x):
        weight = self.posterior.rsample()
        return F.linear(x, weight[:, :-1], weight[:, -1])

    def kl(self):
        return kl_divergence(self.posterior, self.prior).sum()


class BayesNet(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.layers = nn.ModuleList([BayesLinear(1, hidden), BayesLinear(hidden, hidden), BayesLinear(hidden, 1)])

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = torch.tanh(layer(x))
        return self.layers[-1](x)

    def kl(self):
        return sum(layer.kl() for layer in self.layers)


def minibatch_weight(index, batches):
    """Blundell et al., section 3.4: early mini-batches of an epoch carry more of the complexity cost."""
    return 2.0 ** (batches - index - 1) / (2.0**batches - 1.0)


def main():
    torch.manual_seed(0)
    x = torch.linspace(-2, 2, 128).unsqueeze(1)
    y = torch.sin(2 * x) + 0.1 * torch.randn_like(x)
    net = BayesNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)

    @torch.compile(backend="eager")
    def elbo_loss(inputs, targets, beta):
        nll = -Normal(net(inputs), 0.1).log_prob(targets).sum()
        return nll + beta * net.kl()

    batches = 4
    for epoch in range(10):
        order = torch.randperm(len(x))
        total = 0.0
        for index, rows in enumerate(order.chunk(batches)):
            loss = elbo_loss(x[rows], y[rows], minibatch_weight(index, batches))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        if epoch % 5 == 4:
            print(f"epoch {epoch + 1:2d} loss {total / len(x):.3f}")
    with torch.no_grad():
        draws = torch.stack([net(x) for _ in range(16)])
    print(f"posterior std {draws.std(dim=0).mean().item():.4f}")


if __name__ == "__main__":
    main()
