"""TD3 with a ring buffer, target policy smoothing and delayed actor updates on a one-dimensional tracking task."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Batch(NamedTuple):
    obs: Tensor
    action: Tensor
    reward: Tensor
    next_obs: Tensor
    done: Tensor


class Replay:
    def __init__(self, capacity, obs_dim, act_dim):
        self.storage = Batch(
            torch.zeros(capacity, obs_dim),
            torch.zeros(capacity, act_dim),
            torch.zeros(capacity),
            torch.zeros(capacity, obs_dim),
            torch.zeros(capacity),
        )
        self.capacity, self.cursor, self.size = capacity, 0, 0

    def push(self, *transition):
        for column, value in zip(self.storage, transition):
            column[self.cursor] = value
        self.cursor = (self.cursor + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def sample(self, count):
        rows = torch.randint(self.size, (count,))
        return Batch(*(column[rows] for column in self.storage))


def mlp(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 32), nn.ReLU(), nn.Linear(32, outputs))


class TD3:
    def __init__(self, obs_dim, act_dim, tau=0.05, gamma=0.95):
        self.actor, self.actor_target = mlp(obs_dim, act_dim), mlp(obs_dim, act_dim)
        self.critics = nn.ModuleList(mlp(obs_dim + act_dim, 1) for _ in range(2))
        self.critic_targets = nn.ModuleList(mlp(obs_dim + act_dim, 1) for _ in range(2))
        self.actor_target.load_state_dict(self.actor.state_dict())
        self.critic_targets.load_state_dict(self.critics.state_dict())
        self.tau, self.gamma = tau, gamma
        self.critic_loss = torch.compile(self.critic_loss, backend="aot_eager")
        self.actor_loss = torch.compile(self.actor_loss, backend="aot_eager")
        self.polyak = torch.compile(self.polyak, backend="eager")

    def critic_loss(self, batch, noise):
        with torch.no_grad():
            smooth = torch.tanh(self.actor_target(batch.next_obs)) + noise.clamp(-0.3, 0.3)
            pair = torch.cat([batch.next_obs, smooth.clamp(-1, 1)], dim=1)
            target = torch.min(*(critic(pair).squeeze(1) for critic in self.critic_targets))
            target = batch.reward + self.gamma * (1 - batch.done) * target
        pair = torch.cat([batch.obs, batch.action], dim=1)
        return sum(F.mse_loss(critic(pair).squeeze(1), target) for critic in self.critics)

    def actor_loss(self, obs):
        return -self.critics[0](torch.cat([obs, torch.tanh(self.actor(obs))], dim=1)).mean()

    @torch.no_grad()
    def polyak(self):
        for net, target in ((self.actor, self.actor_target), (self.critics, self.critic_targets)):
            for p, t in zip(net.parameters(), target.parameters()):
                t.lerp_(p, self.tau)


def main():
    torch.manual_seed(13)
    agent, replay = TD3(2, 1), Replay(64, 2, 1)
    opt_critic = torch.optim.Adam(agent.critics.parameters(), lr=3e-3)
    opt_actor = torch.optim.Adam(agent.actor.parameters(), lr=1e-3)
    goal, place, loss_a = torch.tensor(0.5), torch.tensor(-0.5), torch.tensor(0.0)
    for step in range(90):
        obs = torch.stack([place, goal])
        with torch.no_grad():
            action = (torch.tanh(agent.actor(obs)) + 0.2 * torch.randn(1)).clamp(-1, 1)
        place = (place + 0.2 * action[0]).clamp(-1, 1)
        done = float((place - goal).abs() < 0.05)
        replay.push(obs, action, -(place - goal).abs(), torch.stack([place, goal]), done)
        if done:
            place = torch.rand(()) * 2 - 1
        if replay.size < 16:
            continue
        batch = replay.sample(16)
        loss_c = agent.critic_loss(batch, 0.1 * torch.randn(16, 1))
        opt_critic.zero_grad()
        loss_c.backward()
        opt_critic.step()
        if step % 2 == 0:
            loss_a = agent.actor_loss(batch.obs)
            opt_actor.zero_grad()
            loss_a.backward()
            opt_actor.step()
            agent.polyak()
        if step % 30 == 29:
            print(f"step {step + 1} critic {loss_c.item():.4f} actor {loss_a.item():.4f} replay {replay.size}")


if __name__ == "__main__":
    main()
