"""Plays a corridor with a DQN agent: epsilon-greedy actions, a circular replay buffer and periodic target updates."""

import math
from collections import namedtuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

LENGTH = 5
Transition = namedtuple("Transition", "obs action reward next_obs done")


class ReplayBuffer:
    def __init__(self, capacity, obs_dim):
        self.capacity = capacity
        self.obs = torch.zeros(capacity, obs_dim)
        self.action = torch.zeros(capacity, dtype=torch.long)
        self.reward = torch.zeros(capacity)
        self.next_obs = torch.zeros(capacity, obs_dim)
        self.done = torch.zeros(capacity)
        self.pos = 0
        self.full = False

    def add(self, obs, action, reward, next_obs, done):
        self.obs[self.pos] = obs
        self.action[self.pos] = action
        self.reward[self.pos] = reward
        self.next_obs[self.pos] = next_obs
        self.done[self.pos] = done
        self.pos = (self.pos + 1) % self.capacity
        self.full = self.full or self.pos == 0

    def sample(self, rows):
        return Transition(self.obs[rows], self.action[rows], self.reward[rows], self.next_obs[rows], self.done[rows])

    def __len__(self):
        return self.capacity if self.full else self.pos


class Agent:
    def __init__(self, obs_dim, actions, seed):
        self.q = nn.Sequential(nn.Linear(obs_dim, 32), nn.ReLU(), nn.Linear(32, actions))
        self.target = nn.Sequential(nn.Linear(obs_dim, 32), nn.ReLU(), nn.Linear(32, actions))
        self.target.load_state_dict(self.q.state_dict())
        self.actions = actions
        self.rng = np.random.default_rng(seed)
        self.eps_start, self.eps_end, self.eps_steps = 1.0, 0.1, 40

    @torch.compile(backend="eager")
    def act(self, obs, eps):
        if self.rng.random() < eps:
            return torch.tensor(self.rng.integers(self.actions))
        return self.q(obs).argmax()

    @torch.compile(backend="eager")
    def td_loss(self, batch, gamma=0.95):
        q = self.q(batch.obs).gather(1, batch.action.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            best = self.target(batch.next_obs).amax(dim=1)
            goal = batch.reward + gamma * (1.0 - batch.done) * best
        return F.smooth_l1_loss(q, goal)

    def epsilon(self, step):
        return self.eps_end + (self.eps_start - self.eps_end) * math.exp(-step / self.eps_steps)


def observe(cell):
    return F.one_hot(torch.tensor(cell), LENGTH).float()


def main():
    torch.manual_seed(0)
    agent = Agent(LENGTH, actions=2, seed=0)
    buffer = ReplayBuffer(capacity=64, obs_dim=LENGTH)
    remember = torch.compile(buffer.add, backend="eager")
    optimizer = torch.optim.Adam(agent.q.parameters(), lr=1e-2)
    cell, goals, loss = 0, 0, torch.tensor(0.0)
    for step in range(160):
        with torch.no_grad():
            action = agent.act(observe(cell), agent.epsilon(step)).item()
        next_cell = min(max(cell + (1 if action == 1 else -1), 0), LENGTH - 1)
        done = next_cell == LENGTH - 1
        remember(observe(cell), torch.tensor(action), torch.tensor(float(done)), observe(next_cell), torch.tensor(float(done)))
        goals += done
        cell = 0 if done else next_cell
        if len(buffer) >= 16:
            loss = agent.td_loss(buffer.sample(torch.randint(len(buffer), (16,))))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if step % 20 == 19:
            agent.target.load_state_dict(agent.q.state_dict())
        if step % 40 == 39:
            print(f"step {step + 1:3d} goals {goals} loss {loss.item():.4f} buffer {len(buffer)}")


if __name__ == "__main__":
    main()
