"""Double DQN with prioritised replay on a toy corridor; acting, the loss and the optimizer step are compiled."""
import random
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    obs_dim: int = 6
    actions: int = 4
    gamma: float = 0.97
    beta: float = 0.4
    batch: int = 32


class DuelingNet(nn.Module):
    def __init__(self, cfg: Config):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(cfg.obs_dim, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.value = nn.Linear(32, 1)
        self.advantage = nn.Linear(32, cfg.actions)

    def forward(self, obs):
        hidden = self.body(obs)
        advantage = self.advantage(hidden)
        return self.value(hidden) + advantage - advantage.mean(-1, keepdim=True)


class Agent:
    def __init__(self, cfg):
        self.cfg = cfg
        self.online = DuelingNet(cfg)
        self.target = DuelingNet(cfg)
        self.target.load_state_dict(self.online.state_dict())
        self.chosen = []

    @torch.compile(backend="aot_eager")
    def act(self, obs):
        with torch.no_grad():
            q = self.online(obs)
        self.chosen.append(q.max())
        return q.argmax()

    @torch.compile(backend="aot_eager")
    def loss(self, obs, action, reward, next_obs, probs):
        q = self.online(obs).gather(1, action[:, None]).squeeze(1)
        with torch.no_grad():
            best = self.online(next_obs).argmax(1)
            goal = reward + self.cfg.gamma * self.target(next_obs).gather(1, best[:, None]).squeeze(1)
        weight = (512 * probs) ** -self.cfg.beta
        weight = weight / weight.max()
        return (weight * F.smooth_l1_loss(q, goal, reduction="none")).mean(), (goal - q).abs().detach()


def main():
    random.seed(3)
    torch.manual_seed(3)
    cfg = Config()
    agent = Agent(cfg)
    obs, action, reward = torch.randn(512, cfg.obs_dim), torch.randint(cfg.actions, (512,)), torch.rand(512)
    next_obs, priority = obs + 0.1 * torch.randn_like(obs), torch.ones(512)
    optimizer = torch.optim.Adam(agent.online.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

    @torch.compile(backend="aot_eager")
    def apply_gradients():
        optimizer.step()

    for step in range(6):
        cfg.beta = min(1.0, 0.4 + 0.1 * step)
        slot = random.randrange(512)
        action[slot] = agent.act(obs[slot])
        probs = priority / priority.sum()
        index = torch.multinomial(probs, cfg.batch)
        loss, td = agent.loss(obs[index], action[index], reward[index], next_obs[index], probs[index])
        optimizer.zero_grad()
        loss.backward()
        apply_gradients()
        scheduler.step()
        priority[index] = td + 1e-3
        if step % 3 == 2:
            agent.target.load_state_dict(agent.online.state_dict())
            print(f"step {step} loss {loss.item():.3f} best q {torch.stack(agent.chosen).mean().item():.3f}")


if __name__ == "__main__":
    main()
