"""Rolls out several agents with heads of their own over a shared trunk that exchange messages for a few steps."""

from enum import Enum

import torch
from torch import nn

MSG_DIM = 3


class Phase(Enum):
    EXPLORE = "explore"
    EXPLOIT = "exploit"


class SharedPolicy(nn.Module):
    def __init__(self, agents, obs_dim=5, actions=4, hidden=16):
        super().__init__()
        self.encode = nn.Linear(obs_dim, hidden)
        self.read = nn.Linear(MSG_DIM, hidden)
        self.speak = nn.Linear(hidden, MSG_DIM)
        self.heads = nn.ModuleDict({name: nn.Linear(hidden, actions) for name in agents})

    def forward(self, obs, agent_id, message):
        h = torch.tanh(self.encode(obs) + self.read(message))
        return self.heads[agent_id](h), self.speak(h)


@torch.compile(backend="eager")
def choose(logits, bonus, phase):
    if phase is Phase.EXPLORE:
        logits = logits / 2.0 + bonus
    return logits.argmax(dim=-1)


@torch.compile(backend="eager")
def mix_messages(previous, spoken):
    mean = torch.stack(spoken).mean(dim=0)
    if previous is None:
        return mean
    return 0.5 * (previous + mean)


class GridEnv:
    def __init__(self, agents, envs, generator):
        self.envs = envs
        self.obs = {name: torch.randn(envs, 5, generator=generator) for name in agents}
        self.effects = torch.randn(4, 5, generator=generator)

    def step(self, actions):
        rewards = {}
        for name, action in actions.items():
            self.obs[name] = 0.9 * self.obs[name] + 0.1 * self.effects[action]
            rewards[name] = -self.obs[name].square().mean(dim=-1)
        return self.obs, rewards


def rollout(policy, env, agents, bonus, steps, phase):
    obs, message = env.obs, None
    heard = torch.zeros(env.envs, MSG_DIM)
    total = {name: 0.0 for name in agents}
    for _ in range(steps):
        actions, spoken = {}, []
        for name in agents:
            logits, said = policy(obs[name], name, heard)
            actions[name] = choose(logits, bonus, phase)
            spoken.append(said)
        message = heard = mix_messages(message, spoken)
        obs, rewards = env.step(actions)
        for name, reward in rewards.items():
            total[name] += reward.mean().item()
    return total


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    agents = ["scout", "miner", "guard"]
    policy = torch.compile(SharedPolicy(agents).eval(), backend="eager")
    env = GridEnv(agents, envs=8, generator=generator)
    bonus = 0.5 * torch.randn(4, generator=generator)
    with torch.no_grad():
        for phase in (Phase.EXPLORE, Phase.EXPLOIT):
            total = rollout(policy, env, agents, bonus, steps=3, phase=phase)
            print(phase.value, " ".join(f"{name} {value:.4f}" for name, value in total.items()))


if __name__ == "__main__":
    main()
