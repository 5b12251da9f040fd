"""PPO on a toy point-mass task: the minibatch update is compiled, the entropy bonus is annealed, KL stops an epoch early."""

import logging
from types import SimpleNamespace

import torch
import torch.nn as nn
from torch.distributions import Normal

log = logging.getLogger("ppo")
cfg = SimpleNamespace(clip=0.2, entropy_coef=0.02, target_kl=0.05, minibatch=48)


class ActorCritic(nn.Module):
    def __init__(self, obs=3, act=2, width=32):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(obs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.mu = nn.Linear(width, act)
        self.value = nn.Linear(width, 1)
        self.log_std = nn.Parameter(torch.zeros(act))

    def forward(self, obs):
        h = self.trunk(obs)
        return Normal(self.mu(h), self.log_std.exp(), validate_args=False), self.value(h).squeeze(-1)


@torch.compile(backend="aot_eager")
def ppo_loss(policy, batch, diagnostics):
    dist, value = policy(batch["obs"])
    ratio = (dist.log_prob(batch["act"]).sum(-1) - batch["logp"]).exp()
    adv = batch["adv"]
    surrogate = torch.min(ratio * adv, ratio.clamp(1 - cfg.clip, 1 + cfg.clip) * adv)
    kl = ((ratio - 1) - ratio.log()).mean()
    log.info("kl %.4f", kl)
    diagnostics["kl"] = kl.detach()
    value_loss = (value - batch["ret"]).square().mean()
    return -surrogate.mean() + 0.5 * value_loss - cfg.entropy_coef * dist.entropy().sum(-1).mean()


def collect(policy, seed, size=160):
    gen = torch.Generator().manual_seed(seed)
    obs = torch.randn(size, 3, generator=gen)
    with torch.no_grad():
        dist, value = policy(obs)
        act = dist.mean + dist.stddev * torch.randn(size, 2, generator=gen)
        reward = -(act - obs[:, :2]).square().sum(-1)
        adv = reward - value
    logp = dist.log_prob(act).sum(-1).detach()
    return {"obs": obs, "act": act, "logp": logp, "adv": (adv - adv.mean()) / adv.std(), "ret": reward}


def main():
    torch.manual_seed(0)
    logging.basicConfig(level=logging.WARNING)
    policy = ActorCritic()
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    diagnostics = {}
    updates = 0
    for iteration in range(3):
        rollout = collect(policy, iteration)
        cfg.entropy_coef = 0.02 * (1 - iteration / 3)
        for start in range(0, 160, cfg.minibatch):
            batch = {name: part[start : start + cfg.minibatch] for name, part in rollout.items()}
            loss = ppo_loss(policy, batch, diagnostics)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            updates += 1
            if diagnostics["kl"].item() > cfg.target_kl:
                break
    print(f"{updates} updates, last loss {loss.item():.2f}")


if __name__ == "__main__":
    main()
