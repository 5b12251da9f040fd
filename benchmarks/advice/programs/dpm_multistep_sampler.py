"""Samples 2-D points from a toy denoiser with a DPM-Solver++ multistep scheduler in the style of diffusers."""

import torch
from torch import nn


class MultistepScheduler:
    order = 2

    def __init__(self, train_steps=1000, beta_start=1e-4, beta_end=2e-2):
        alphas = torch.cumprod(1.0 - torch.linspace(beta_start, beta_end, train_steps), dim=0)
        self.alpha_t, self.sigma_t = alphas.sqrt(), (1.0 - alphas).sqrt()
        self.lambda_t = torch.log(self.alpha_t) - torch.log(self.sigma_t)

    def set_timesteps(self, steps):
        self.timesteps = torch.linspace(len(self.alpha_t) - 1, 0, steps + 1).round().long()
        self.model_outputs = [None] * self.order

    def step(self, epsilon, timestep, next_timestep, sample):
        x0 = (sample - self.sigma_t[timestep] * epsilon) / self.alpha_t[timestep]
        for i in range(self.order - 1):
            self.model_outputs[i] = self.model_outputs[i + 1]
        self.model_outputs[-1] = x0.detach()
        h = self.lambda_t[next_timestep] - self.lambda_t[timestep]
        drift = self.model_outputs[-1]
        if self.model_outputs[-2] is not None:
            drift = drift + 0.5 * (self.model_outputs[-1] - self.model_outputs[-2])
        ratio = self.sigma_t[next_timestep] / self.sigma_t[timestep]
        return ratio * sample - self.alpha_t[next_timestep] * torch.expm1(-h) * drift


class Denoiser(nn.Module):
    def __init__(self, dim=2, hidden=64, classes=4):
        super().__init__()
        self.label = nn.Embedding(classes + 1, hidden)
        self.inp = nn.Linear(dim, hidden)
        self.out = nn.Sequential(nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, dim))

    def forward(self, x, t, label):
        freqs = torch.exp(-torch.arange(32, device=x.device) / 32 * 9.21)
        angle = t.float() * freqs
        return self.out(self.inp(x) + self.label(label) + torch.cat([angle.sin(), angle.cos()]))


class Sampler:
    def __init__(self, denoiser, scheduler, null_label=4):
        self.denoiser, self.scheduler, self.null_label = denoiser, scheduler, null_label

    @torch.compile(backend="eager")
    def denoise(self, x, timestep, next_timestep, labels, guidance):
        both = self.denoiser(torch.cat([x, x]), timestep, torch.cat([labels, torch.full_like(labels, self.null_label)]))
        cond, uncond = both.chunk(2)
        return self.scheduler.step(uncond + guidance * (cond - uncond), timestep, next_timestep, x)

    @torch.no_grad()
    def __call__(self, labels, steps, guidance):
        x = torch.randn(len(labels), 2, generator=torch.Generator().manual_seed(7))
        self.scheduler.set_timesteps(steps)
        for timestep, next_timestep in zip(self.scheduler.timesteps[:-1], self.scheduler.timesteps[1:]):
            x = self.denoise(x, timestep, next_timestep, labels, guidance)
        return x


def main():
    torch.manual_seed(0)
    sampler = Sampler(Denoiser().eval(), MultistepScheduler())
    labels = torch.arange(8) % 4
    for steps in (10, 20):
        points = sampler(labels, steps, guidance=torch.tensor(3.0))
        print(f"{steps} steps: mean {points.mean().item():+.4f} spread {points.std().item():.4f}")


if __name__ == "__main__":
    main()
