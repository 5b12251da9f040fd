"""Cooperative foraging with parameter sharing and message passing; agents leave the episode when their battery is empty."""

import torch
from torch import nn
from torch.distributions import Categorical

ACTIONS = 5


class ForagingEnv:
    """A PettingZoo-like parallel environment: observations and rewards are dicts with one entry for each living agent."""

    def __init__(self, names, size=6):
        self.names, self.size = names, size
        self.moves = torch.tensor([[0, 0], [0, 1], [0, -1], [1, 0], [-1, 0]])

    def reset(self, seed):
        self.rng = torch.Generator().manual_seed(seed)
        self.agents = list(self.names)
        self.battery = {name: 4 + 2 * index for index, name in enumerate(self.names)}
        self.position = {name: torch.randint(self.size, (2,), generator=self.rng) for name in self.names}
        self.food = torch.randint(self.size, (2,), generator=self.rng)
        return self.observe()

    def observe(self):
        return {
            name: torch.cat([self.position[name], self.food, self.food - self.position[name]]).float() / self.size
            for name in self.agents
        }

    def step(self, actions):
        rewards = {}
        for name in self.agents:
            self.position[name] = (self.position[name] + self.moves[actions[name]]).clamp(0, self.size - 1)
            rewards[name] = -float((self.food - self.position[name]).abs().sum()) / self.size
            self.battery[name] -= 1
        self.agents = [name for name in self.agents if self.battery[name] > 0]
        return self.observe(), rewards


class GossipPolicy(nn.Module):
    def __init__(self, obs_dim=6, hidden=32):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh())
        self.message = nn.Linear(hidden, hidden)
        self.actor = nn.Linear(2 * hidden, ACTIONS)

    def forward(self, observations):
        encoded = {name: self.encoder(obs) for name, obs in observations.items()}
        gossip = torch.stack([self.message(code) for code in encoded.values()]).mean(dim=0)
        return {name: self.actor(torch.cat([code, gossip])) for name, code in encoded.items()}


def run_episode(env, policy, seed):
    observations = env.reset(seed)
    log_probs, returns = [], []
    while env.agents:
        logits = policy(observations)
        choices = {name: Categorical(logits=logits[name]) for name in env.agents}
        actions = {name: dist.sample() for name, dist in choices.items()}
        log_probs.append(torch.stack([choices[name].log_prob(actions[name]) for name in choices]).sum())
        observations, rewards = env.step(actions)
        returns.append(sum(rewards.values()))
    return torch.stack(log_probs), torch.tensor(returns).flip(0).cumsum(0).flip(0)


def main():
    torch.manual_seed(0)
    env = ForagingEnv(["scout", "carrier", "digger"])
    policy = GossipPolicy()
    compiled = torch.compile(policy, backend="eager")
    optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
    for episode in range(4):
        log_probs, returns = run_episode(env, compiled, seed=episode)
        loss = -(log_probs * (returns - returns.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"episode {episode + 1} steps {len(returns)} return {returns[0].item():.3f} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
