"""Runs PPO updates with an annealed clip range and early stopping on the KL divergence over a fixed rollout."""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical


class ActorCritic(nn.Module):
    def __init__(self, obs_dim=6, actions=4, hidden=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.pi = nn.Linear(hidden, actions)
        self.v = nn.Linear(hidden, 1)

    def forward(self, obs):
        h = self.body(obs)
        return Categorical(logits=self.pi(h), validate_args=False), self.v(h).squeeze(-1)


@dataclass
class Stats:
    policy: list = field(default_factory=list)
    value: list = field(default_factory=list)
    kl: list = field(default_factory=list)


class PPO:
    def __init__(self, policy, clip_range=0.2, ent_coef=0.01, vf_coef=0.5, target_kl=0.03):
        self.policy = policy
        self.clip_range = clip_range
        self.ent_coef = ent_coef
        self.vf_coef = vf_coef
        self.target_kl = target_kl
        self.stats = Stats()
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3, eps=1e-5)
        self.minibatch_loss = torch.compile(self._minibatch_loss, backend="eager")

    def _minibatch_loss(self, obs, actions, old_log_prob, advantages, returns, clip_range):
        dist, values = self.policy(obs)
        log_prob = dist.log_prob(actions)
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        log_ratio = log_prob - old_log_prob
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - clip_range, 1 + clip_range)
        policy_loss = -torch.min(advantages * ratio, advantages * clipped).mean()
        value_loss = F.mse_loss(values, returns)
        entropy = dist.entropy().mean()
        approx_kl = ((ratio - 1) - log_ratio).mean().detach()
        self.stats.kl.append(approx_kl.item())
        loss = policy_loss + self.vf_coef * value_loss - self.ent_coef * entropy
        return loss, policy_loss.detach(), value_loss.detach()

    def update(self, rollout, progress, epochs=4, size=32):
        clip_range = torch.tensor(self.clip_range * (1.0 - progress))
        count = len(rollout[0])
        for epoch in range(epochs):
            order = torch.randperm(count)
            for rows in order.split(size):
                batch = [values[rows] for values in rollout]
                loss, policy_loss, value_loss = self.minibatch_loss(*batch, clip_range)
                self.stats.policy.append(policy_loss)
                self.stats.value.append(value_loss)
                if self.stats.kl[-1] > 1.5 * self.target_kl:
                    return epoch
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.policy.parameters(), 0.5)
                self.optimizer.step()
        return epochs


def collect(policy, steps=96):
    obs = torch.randn(steps, 6)
    with torch.no_grad():
        dist, values = policy(obs)
        actions = dist.sample()
        rewards = (actions == obs[:, :4].argmax(dim=-1)).float()
        return [obs, actions, dist.log_prob(actions), rewards - values, rewards]


def main():
    torch.manual_seed(0)
    ppo = PPO(ActorCritic())
    iterations = 5
    for iteration in range(iterations):
        rollout = collect(ppo.policy)
        epochs = ppo.update(rollout, progress=iteration / iterations)
        print(
            f"iteration {iteration} epochs {epochs} policy {ppo.stats.policy[-1].item():.4f}"
            f" value {ppo.stats.value[-1].item():.4f} kl {ppo.stats.kl[-1]:.4f} reward {rollout[-1].mean().item():.4f}"
        )


if __name__ == "__main__":
    main()
