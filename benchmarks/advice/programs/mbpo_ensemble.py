"""Model-based RL: an ensemble of probabilistic dynamics models, random-shooting plans with a random elite member for each step."""

import random

import torch
import torch.nn.functional as F
from torch import nn


class DynamicsModel(nn.Module):
    def __init__(self, obs_dim, act_dim, hidden=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim + act_dim, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU())
        self.mean = nn.Linear(hidden, obs_dim + 1)
        self.log_std = nn.Linear(hidden, obs_dim + 1)

    def forward(self, obs, act):
        hidden = self.body(torch.cat([obs, act], dim=-1))
        return self.mean(hidden), self.log_std(hidden).clamp(-5.0, 0.5)


class Ensemble(nn.Module):
    def __init__(self, obs_dim, act_dim, size=5):
        super().__init__()
        self.obs_dim = obs_dim
        self.members = nn.ModuleList(DynamicsModel(obs_dim, act_dim) for _ in range(size))
        self.elites = list(range(size))
        self.noise_rng = torch.Generator().manual_seed(7)

    def nll(self, obs, act, target):
        losses = []
        for member in self.members:
            mean, log_std = member(obs, act)
            losses.append((0.5 * ((target - mean) / log_std.exp()).square() + log_std).mean())
        return torch.stack(losses)

    def imagine(self, obs, act, member):
        mean, log_std = self.members[member](obs, act)
        noise = torch.randn(mean.shape, generator=self.noise_rng)
        sample = mean + log_std.exp() * noise
        return obs + sample[:, : self.obs_dim], sample[:, self.obs_dim]


def pendulum_like(obs, act):
    angle, speed = obs[:, :1], obs[:, 1:]
    new_speed = (speed + 0.3 * angle.sin() + 0.2 * act).clamp(-2, 2)
    reward = -(angle.square() + 0.1 * speed.square()).squeeze(1)
    return torch.cat([angle + 0.1 * new_speed, new_speed], dim=1), reward


def fit_ensemble(ensemble, steps=30):
    optimizer = torch.optim.Adam(ensemble.parameters(), lr=3e-3)
    nll = torch.compile(ensemble.nll, backend="eager")
    for _ in range(steps):
        obs, act = torch.randn(64, 2), torch.rand(64, 1) * 2 - 1
        next_obs, reward = pendulum_like(obs, act)
        losses = nll(obs, act, torch.cat([next_obs - obs, reward.unsqueeze(1)], dim=1))
        optimizer.zero_grad()
        losses.sum().backward()
        optimizer.step()
    ensemble.elites = losses.argsort()[:3].tolist()
    return losses.mean().item()


@torch.no_grad()
def shoot(imagine, ensemble, obs, candidates=32, horizon=5):
    """Returns the best of some random action sequences, judged by the learned model alone."""
    plans = torch.rand(horizon, candidates, 1) * 2 - 1
    states, total = obs.expand(candidates, -1).clone(), torch.zeros(candidates)
    for act in plans:
        states, reward = imagine(states, act, random.choice(ensemble.elites))
        total += reward
    return plans[0, total.argmax()], total.max().item()


def main():
    torch.manual_seed(0)
    random.seed(0)
    ensemble = Ensemble(2, 1)
    print(f"dynamics nll {fit_ensemble(ensemble):.3f}")
    imagine = torch.compile(ensemble.imagine, backend="eager")
    obs, earned = torch.tensor([[0.8, 0.0]]), 0.0
    for step in range(6):
        act, promised = shoot(imagine, ensemble, obs)
        obs, reward = pendulum_like(obs, act.view(1, 1))
        earned += reward.item()
        print(f"step {step + 1} promised {promised:.3f} earned {earned:.3f}")


if __name__ == "__main__":
    main()
