"""PPO on a point-mass task: Gaussian policy, clipped surrogate, several epochs of minibatches per rollout."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Normal


class PointMass:
    def __init__(self, num_envs, generator):
        self.num_envs, self.generator = num_envs, generator
        self.position = self.velocity = torch.zeros(num_envs, 1)

    def reset(self):
        self.position = torch.rand(self.num_envs, 1, generator=self.generator) * 2 - 1
        self.velocity = torch.zeros(self.num_envs, 1)
        return torch.cat([self.position, self.velocity], dim=1)

    def step(self, force):
        self.velocity = 0.9 * self.velocity + 0.1 * force.clamp(-1, 1)
        self.position = self.position + self.velocity
        reward = -(self.position.abs() + 0.1 * force.abs()).squeeze(1)
        return torch.cat([self.position, self.velocity], dim=1), reward


class Policy(nn.Module):
    def __init__(self, obs_dim=2, act_dim=1):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(obs_dim, 32), nn.Tanh())
        self.mean = nn.Linear(32, act_dim)
        self.log_std = nn.Parameter(torch.full((act_dim,), -0.5))
        self.value = nn.Linear(32, 1)

    def forward(self, obs):
        h = self.trunk(obs)
        return self.mean(h), self.log_std.exp(), self.value(h).squeeze(-1)


class PPO:
    def __init__(self, policy, clip_coef=0.2, ent_coef=0.01, vf_coef=0.5):
        self.policy = policy
        self.clip_coef, self.ent_coef, self.vf_coef = clip_coef, ent_coef, vf_coef
        self.clipfracs = []

    @torch.compile(backend="eager")
    def loss(self, obs, actions, old_logprob, advantages, returns):
        mean, std, value = self.policy(obs)
        dist = Normal(mean, std, validate_args=False)
        ratio = (dist.log_prob(actions).sum(-1) - old_logprob).exp()
        with torch.no_grad():
            self.clipfracs.append(((ratio - 1.0).abs() > self.clip_coef).float().mean())
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        clipped = ratio.clamp(1 - self.clip_coef, 1 + self.clip_coef)
        pg_loss = -torch.min(ratio * advantages, clipped * advantages).mean()
        v_loss = F.mse_loss(value, returns)
        return pg_loss - self.ent_coef * dist.entropy().sum(-1).mean() + self.vf_coef * v_loss


@torch.no_grad()
def rollout(policy, env, horizon=16, gamma=0.95):
    obs, steps = env.reset(), []
    for _ in range(horizon):
        mean, std, value = policy(obs)
        dist = Normal(mean, std)
        action = dist.sample()
        next_obs, reward = env.step(action)
        steps.append((obs, action, dist.log_prob(action).sum(-1), value, reward))
        obs = next_obs
    obs, actions, logprob, values, rewards = (torch.stack(each) for each in zip(*steps))
    returns = torch.zeros_like(rewards)
    running = torch.zeros(env.num_envs)
    for t in reversed(range(horizon)):
        running = rewards[t] + gamma * running
        returns[t] = running
    flat = (obs, actions, logprob, returns - values, returns)
    return [each.flatten(0, 1) for each in flat], rewards.mean().item()


def main():
    torch.manual_seed(21)
    policy = Policy()
    env = PointMass(8, torch.Generator().manual_seed(4))
    agent = PPO(policy)
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    for iteration in range(2):
        batch, mean_reward = rollout(policy, env)
        for _ in range(3):
            for rows in torch.randperm(128).split(32):
                loss = agent.loss(*(each[rows] for each in batch))
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
                optimizer.step()
        clipfrac = torch.stack(agent.clipfracs).mean().item()
        print(f"iteration {iteration} reward {mean_reward:.3f} loss {loss.item():.3f} clipfrac {clipfrac:.3f}")
        agent.clipfracs.clear()


if __name__ == "__main__":
    main()
