"""Updates a soft actor-critic agent with tuned temperature from a batch of stored transitions."""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Independent, Normal


def mlp(sizes):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class SquashedActor(nn.Module):
    def __init__(self, obs_dim, act_dim):
        super().__init__()
        self.net = mlp([obs_dim, 32, 32, 2 * act_dim])

    def forward(self, obs):
        mean, log_std = self.net(obs).chunk(2, dim=-1)
        dist = Independent(Normal(mean, log_std.clamp(-5, 2).exp()), 1)
        raw = dist.rsample()
        log_prob = dist.log_prob(raw) - (2 * (math.log(2.0) - raw - F.softplus(-2 * raw))).sum(-1)
        return torch.tanh(raw), log_prob


class TwinCritic(nn.Module):
    def __init__(self, obs_dim, act_dim):
        super().__init__()
        self.q1 = mlp([obs_dim + act_dim, 32, 32, 1])
        self.q2 = mlp([obs_dim + act_dim, 32, 32, 1])

    def forward(self, obs, action):
        x = torch.cat([obs, action], dim=-1)
        return self.q1(x).squeeze(-1), self.q2(x).squeeze(-1)


class SAC:
    def __init__(self, obs_dim, act_dim, tau=0.05, gamma=0.98, target_every=2):
        self.actor = SquashedActor(obs_dim, act_dim)
        self.critic = TwinCritic(obs_dim, act_dim)
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        self.log_alpha = nn.Parameter(torch.tensor(-1.0))
        self.target_entropy = -float(act_dim)
        self.tau, self.gamma, self.target_every = tau, gamma, target_every
        self.updates = 0
        self.alpha = self.log_alpha.exp().item()
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=3e-3)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=3e-3)
        self.alpha_optimizer = torch.optim.Adam([self.log_alpha], lr=3e-2)
        self.critic_loss = torch.compile(self._critic_loss, backend="eager")
        self.actor_loss = torch.compile(self._actor_loss, backend="eager")
        self.update_target = torch.compile(self._update_target, backend="eager")

    def _critic_loss(self, obs, action, reward, next_obs):
        with torch.no_grad():
            next_action, next_log_prob = self.actor(next_obs)
            goal = reward + self.gamma * (torch.min(*self.target(next_obs, next_action)) - self.alpha * next_log_prob)
        return sum(F.mse_loss(q, goal) for q in self.critic(obs, action))

    def _actor_loss(self, obs):
        action, log_prob = self.actor(obs)
        return (self.alpha * log_prob - torch.min(*self.critic(obs, action))).mean(), log_prob.detach()

    @torch.no_grad()
    def _update_target(self):
        self.updates += 1
        if self.updates % self.target_every == 0:
            for t, p in zip(self.target.parameters(), self.critic.parameters()):
                t.lerp_(p, self.tau)

    def update(self, obs, action, reward, next_obs):
        critic_loss = self.critic_loss(obs, action, reward, next_obs)
        self._descend(self.critic_optimizer, critic_loss)
        actor_loss, log_prob = self.actor_loss(obs)
        self._descend(self.actor_optimizer, actor_loss)
        self._descend(self.alpha_optimizer, -(self.log_alpha * (log_prob + self.target_entropy)).mean())
        self.alpha = self.log_alpha.exp().item()
        self.update_target()
        return critic_loss.item(), actor_loss.item()

    @staticmethod
    def _descend(optimizer, loss):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    torch.manual_seed(0)
    agent = SAC(obs_dim=4, act_dim=2)
    generator = torch.Generator().manual_seed(1)
    for step in range(6):
        obs, next_obs = torch.randn(2, 32, 4, generator=generator)
        action = torch.rand(32, 2, generator=generator) * 2 - 1
        critic_loss, actor_loss = agent.update(obs, action, -(obs[:, :2] - action).norm(dim=-1), next_obs)
        print(f"step {step} critic {critic_loss:.4f} actor {actor_loss:.4f} alpha {agent.alpha:.4f}")


if __name__ == "__main__":
    main()
