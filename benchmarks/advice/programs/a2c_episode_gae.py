"""Advantage actor-critic on a chain walk: one update per episode, generalized advantage estimation."""

import torch
import torch.nn.functional as F
from torch import nn

CELLS = 7


class ChainWalk:
    def __init__(self):
        self.cell = 0

    def reset(self):
        self.cell = CELLS // 2
        return self.encode()

    def encode(self):
        return F.one_hot(torch.tensor(self.cell), CELLS).float()

    def step(self, action):
        self.cell += 1 if action == 1 else -1
        done = self.cell in (0, CELLS - 1)
        return self.encode(), 1.0 if self.cell == CELLS - 1 else -0.02, done


class ActorCritic(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(CELLS, hidden), nn.Tanh())
        self.pi = nn.Linear(hidden, 2)
        self.v = nn.Linear(hidden, 1)

    def forward(self, obs):
        h = self.body(obs)
        return self.pi(h), self.v(h).squeeze(-1)


@torch.compile(backend="eager")
def gae(rewards, values, gamma=0.98, lam=0.95):
    advantages = torch.zeros_like(rewards)
    last = torch.zeros(())
    next_value = torch.zeros(())
    for t in reversed(range(len(values))):
        delta = rewards[t] + gamma * next_value - values[t]
        last = delta + gamma * lam * last
        advantages[t] = last
        next_value = values[t]
    return advantages, advantages + values


@torch.no_grad()
def play(net, env, max_steps=40):
    obs, observations, actions, rewards = env.reset(), [], [], []
    for _ in range(max_steps):
        logits, _ = net(obs)
        action = torch.multinomial(logits.softmax(-1), 1).item()
        observations.append(obs)
        actions.append(action)
        obs, reward, done = env.step(action)
        rewards.append(reward)
        if done:
            break
    return torch.stack(observations), torch.tensor(actions), torch.tensor(rewards)


def main():
    torch.manual_seed(6)
    net, env = ActorCritic(), ChainWalk()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for episode in range(5):
        obs, actions, rewards = play(net, env)
        logits, values = net(obs)
        advantages, returns = gae(rewards, values.detach())
        logp = logits.log_softmax(-1).gather(1, actions.unsqueeze(1)).squeeze(1)
        loss = -(logp * advantages).mean() + 0.5 * F.mse_loss(values, returns)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"episode {episode} steps {len(rewards):2d} return {rewards.sum().item():.2f} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
