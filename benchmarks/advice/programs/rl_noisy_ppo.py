"""PPO on a small vectorized CartPole-like task, with noisy layers for exploration, on one compiled actor-critic."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class NoisyLinear(nn.Linear):
    """Factorized Gaussian noise on the weights while training (Fortunato et al.), none when evaluating."""

    def __init__(self, inputs, outputs, sigma=0.3):
        super().__init__(inputs, outputs)
        self.sigma_w = nn.Parameter(torch.full((outputs, inputs), sigma / math.sqrt(inputs)))
        self.register_buffer("eps_in", torch.zeros(inputs))
        self.register_buffer("eps_out", torch.zeros(outputs))

    def resample(self, generator):
        self.eps_in.copy_(torch.randn(self.in_features, generator=generator))
        self.eps_out.copy_(torch.randn(self.out_features, generator=generator))

    def forward(self, x):
        if not self.training:
            return F.linear(x, self.weight, self.bias)
        weight = self.weight + self.sigma_w * torch.outer(self.eps_out, self.eps_in)
        return F.linear(x, weight, self.bias)


class ActorCritic(nn.Module):
    def __init__(self, state=4, actions=2, hidden=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(state, hidden), nn.Tanh())
        self.policy, self.value = NoisyLinear(hidden, actions), nn.Linear(hidden, 1)

    def forward(self, state):
        h = self.body(state)
        return self.policy(h).log_softmax(-1), self.value(h).squeeze(-1)


class Poles:
    """Poles on carts, all stepped at once; those that fall start again."""

    def __init__(self, count, generator):
        self.generator = generator
        self.state = self.fresh(count)

    def fresh(self, count):
        return 0.05 * torch.randn(count, 4, generator=self.generator)

    def step(self, action):
        x, dx, angle, spin = self.state.unbind(1)
        push = action.float() * 2 - 1
        spin = spin + 0.05 * (9.8 * angle.sin() - 2.0 * push * angle.cos())
        dx = dx + 0.05 * push
        self.state = torch.stack([x + 0.05 * dx, dx, angle + 0.05 * spin, spin], 1)
        fallen = self.state[:, 2].abs() > 0.4
        self.state = torch.where(fallen[:, None], self.fresh(len(fallen)), self.state)
        return 1.0 - fallen.float(), fallen


@torch.no_grad()
def rollout(net, env, steps, generator):
    rows = []
    for _ in range(steps):
        state = env.state
        log_probs, value = net(state)
        action = torch.multinomial(log_probs.exp(), 1, generator=generator).squeeze(1)
        reward, fallen = env.step(action)
        rows.append((state, action, log_probs.gather(1, action[:, None]).squeeze(1), value, reward, fallen))
    return [torch.stack(column) for column in zip(*rows)]


def returns(rewards, fallen, gamma=0.95):
    total, out = torch.zeros_like(rewards[0]), []
    for reward, done in zip(rewards.flip(0), fallen.flip(0)):
        total = reward + gamma * total * ~done
        out.append(total)
    return torch.stack(out[::-1])


@torch.no_grad()
def evaluate(net, env, steps):
    net.eval()
    total = sum(env.step(net(env.state)[0].argmax(-1))[0].mean() for _ in range(steps))
    net.train()
    return float(total) / steps


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    net = ActorCritic()
    net.compile()
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    env, trial = Poles(16, generator), Poles(16, generator)
    for iteration in range(3):
        net.policy.resample(generator)
        states, actions, old, values, rewards, fallen = rollout(net, env, 8, generator)
        targets = returns(rewards, fallen)
        for state, action, before, value, target in zip(states, actions, old, values, targets):
            log_probs, estimate = net(state)
            ratio = (log_probs.gather(1, action[:, None]).squeeze(1) - before).exp()
            advantage = target - value
            policy_loss = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
            loss = policy_loss + 0.5 * F.mse_loss(estimate, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"iteration {iteration}: reward {rewards.mean():.3f}, evaluation {evaluate(net, trial, 10):.3f}")


if __name__ == "__main__":
    main()
