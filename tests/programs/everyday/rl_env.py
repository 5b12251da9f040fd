"""Small REINFORCE agent on a batched point environment."""
import logging
import random

import torch
from torch import nn

logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("rl")


class PointEnv:
    def __init__(self, n):
        self.n = n
        self.t = 0
        self.state = torch.zeros(n, 2)

    def reset(self):
        self.t = 0
        self.state = torch.zeros(self.n, 2)
        return {"pos": self.state}

    def step(self, action):
        self.t += 1
        self.state = self.state + 0.1 * action
        obs = {"pos": self.state}
        if self.t % 3 == 0:
            obs["bonus"] = torch.ones(self.n, 1)
        return obs, -self.state.norm(dim=-1), self.t >= 6


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 32)
        self.mu = nn.Linear(32, 2)

    def forward(self, obs):
        bonus = obs.get("bonus")  # DX104
        pos = obs["pos"]
        if bonus is None:
            bonus = torch.zeros(pos.size(0), 1)
        h = torch.relu(self.fc(torch.cat([pos, bonus], -1)))
        return self.mu(h)


def discount(rewards, gamma=0.9):
    ret, out = torch.zeros_like(rewards[0]), []
    for r in reversed(rewards):
        ret = r + gamma * ret
        out.append(ret)
    log.info("episode return %s", "computed")  # DX201
    return torch.stack(out[::-1])


def main():
    random.seed(0)
    torch.manual_seed(0)
    env, policy = PointEnv(8), Policy()
    act = torch.compile(policy, backend="eager")
    returns = torch.compile(discount, backend="eager")
    opt = torch.optim.Adam(policy.parameters(), 1e-3)
    for _ in range(2):
        obs, done, rewards, logps = env.reset(), False, [], []
        while not done:
            mu = act(obs)
            a = (mu + 0.1 * torch.randn_like(mu)).detach()
            logps.append(-((a - mu) ** 2).sum(-1))
            obs, r, done = env.step(a)
            rewards.append(r)
        loss = -(returns(rewards) * torch.stack(logps)).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print("done")


main()
