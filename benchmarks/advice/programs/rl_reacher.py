"""REINFORCE on a batch of simulated one-dimensional reachers."""

import torch
from torch import nn


class ReacherEnv:
    def __init__(self, n=8, seed=0):
        self.gen = torch.Generator().manual_seed(seed)
        self.n = n
        self.position = torch.zeros(n)
        self.velocity = torch.zeros(n)
        self.target = torch.rand(n, generator=self.gen) * 2 - 1

    def observe(self):
        return torch.stack([self.position, self.velocity, self.target], dim=1)

    @torch.compile(backend="eager")
    def step(self, force):
        velocity = 0.9 * self.velocity + 0.2 * force
        position = self.position + 0.2 * velocity
        outside = position.abs() > 0.35
        if outside.any():
            position = torch.where(outside, torch.zeros_like(position), position)
            velocity = torch.where(outside, torch.zeros_like(velocity), velocity)
        self.position, self.velocity = position, velocity
        return -(position - self.target).square()


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.policy = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))
        self.log_std = nn.Parameter(torch.tensor(-1.0))

    def forward(self, obs, noise):
        mean = self.policy(obs).squeeze(-1)
        action = (mean + noise * self.log_std.exp()).detach()
        log_prob = -0.5 * ((action - mean) / self.log_std.exp()).square() - self.log_std
        return action, log_prob


@torch.compile(backend="eager")
def policy_loss(rewards, log_probs, discount=0.95):
    """The policy gradient of an episode; `rewards` and `log_probs` are lists with one tensor per step."""
    returns, running = [], torch.zeros_like(rewards[0])
    for reward in reversed(rewards):
        running = reward + discount * running
        returns.insert(0, running)
    returns = torch.stack(returns)
    returns = (returns - returns.mean()) / (returns.std() + 1e-3)
    return -(returns * torch.stack(log_probs)).mean()


def rollout(env, agent, steps, gen):
    rewards, log_probs = [], []
    for _ in range(steps):
        action, log_prob = agent(env.observe(), torch.randn(env.n, generator=gen))
        rewards.append(env.step(action))
        log_probs.append(log_prob)
    return rewards, log_probs


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=0.02)
    for episode in range(6):
        env = ReacherEnv(seed=episode)
        # curriculum: the episodes get longer
        rewards, log_probs = rollout(env, agent, 4 + 2 * episode, gen)
        loss = policy_loss(rewards, log_probs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"episode {episode}: return {torch.stack(rewards).mean().item():.3f} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
