"""Bootstrap particle filter for a stochastic volatility model, with resampling when the effective sample size drops."""

import math
from collections import deque

import torch
from torch.distributions import Normal


def systematic_resample(weights, offset):
    count = weights.shape[0]
    positions = (torch.arange(count) + offset) / count
    return torch.searchsorted(weights.cumsum(0), positions).clamp(max=count - 1)


class VolatilityFilter:
    def __init__(self, particles=256, phi=0.95, sigma=0.3, beta=0.7, threshold=0.5, seed=0):
        self.particles = particles
        self.phi, self.sigma, self.beta = phi, sigma, beta
        self.threshold = threshold
        self.rng = torch.Generator().manual_seed(seed)

    def initial(self):
        spread = self.sigma / math.sqrt(1 - self.phi**2)
        return spread * torch.randn(self.particles, generator=self.rng), torch.full((self.particles,), -math.log(self.particles))

    def propagate(self, state):
        noise = torch.randn(self.particles, generator=self.rng)
        return self.phi * state + self.sigma * noise

    def log_likelihood(self, state, observation):
        return Normal(0.0, self.beta * torch.exp(state / 2)).log_prob(observation)

    def update(self, state, log_weights, observation, offset):
        state = self.propagate(state)
        log_weights = log_weights + self.log_likelihood(state, observation)
        evidence = torch.logsumexp(log_weights, dim=0)
        log_weights = log_weights - evidence
        weights = log_weights.exp()
        ess = 1.0 / weights.square().sum()
        if ess < self.threshold * self.particles:
            state = state[systematic_resample(weights, offset)]
            log_weights = torch.full_like(log_weights, -math.log(self.particles))
        return state, log_weights, evidence, ess


def simulate(steps, rng):
    h, ys = torch.tensor(0.0), []
    for _ in range(steps):
        h = 0.95 * h + 0.3 * torch.randn((), generator=rng)
        ys.append(0.7 * torch.exp(h / 2) * torch.randn((), generator=rng))
    return torch.stack(ys)


def main():
    rng = torch.Generator().manual_seed(11)
    observations = simulate(40, rng)
    model = VolatilityFilter(seed=12)
    update = torch.compile(model.update, backend="eager")
    state, log_weights = model.initial()
    total, sizes = torch.tensor(0.0), deque(maxlen=20)
    with torch.no_grad():
        for observation in observations:
            offset = torch.rand((), generator=rng)
            state, log_weights, evidence, ess = update(state, log_weights, observation, offset)
            total += evidence
            sizes.append(ess)
    print(f"log evidence {total.item():.3f}")
    print(f"effective sample size {torch.stack(list(sizes)).mean().item():.1f}")
    print(f"final volatility {(0.7 * torch.exp(state / 2)).mean().item():.4f}")


if __name__ == "__main__":
    main()
