"""Trains a policy with REINFORCE on episodes of a point that has to leave a ring, with returns from a compiled function."""

import warnings

import torch
from torch import nn
from torch.distributions import Normal


class GaussianPolicy(nn.Module):
    def __init__(self, obs_dim=2, act_dim=2, hidden=24):
        super().__init__()
        self.mean = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, act_dim))
        self.log_std = nn.Parameter(torch.full((act_dim,), -1.0))

    def forward(self, obs):
        mean = self.mean(obs)
        if self.log_std.min() < -4.0:
            warnings.warn("the policy is nearly deterministic")
        std = self.log_std.exp().expand_as(mean)
        return mean, std


@torch.compile(backend="eager")
def discounted_returns(rewards, gamma=0.97):
    returns = []
    running = torch.zeros(())
    for reward in reversed(rewards):
        running = reward + gamma * running
        returns.append(running)
    returns.reverse()
    return torch.stack(returns)


class RingEnv:
    def __init__(self, radius=1.5, limit=20):
        self.radius = radius
        self.limit = limit

    def reset(self, generator):
        self.steps = 0
        self.position = 0.1 * torch.randn(2, generator=generator)
        return self.position

    def step(self, action):
        self.steps += 1
        self.position = self.position + 0.4 * action.clamp(-1.0, 1.0)
        left = self.position.norm() > self.radius
        reward = torch.where(left, torch.tensor(1.0), torch.tensor(-0.1))
        return self.position, reward, bool(left) or self.steps >= self.limit


def run_episode(env, policy, generator):
    obs, done = env.reset(generator), False
    log_probs, rewards = [], []
    while not done:
        mean, std = policy(obs)
        action = (mean + std * torch.randn(mean.shape, generator=generator)).detach()
        log_probs.append(Normal(mean, std, validate_args=False).log_prob(action).sum())
        obs, reward, done = env.step(action)
        rewards.append(reward)
    return torch.stack(log_probs), rewards


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(3)
    env = RingEnv()
    policy = GaussianPolicy()
    compiled = torch.compile(policy, backend="eager")
    optimizer = torch.optim.Adam(policy.parameters(), lr=2e-2)
    for episode in range(12):
        log_probs, rewards = run_episode(env, compiled, generator)
        returns = discounted_returns(rewards)
        loss = -(log_probs * (returns - returns.mean())).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"episode {episode:2d} steps {len(rewards):2d} return {returns[0].item():.4f} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
