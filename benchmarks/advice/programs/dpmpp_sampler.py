"""Samples latents with DPM-Solver++(2M) and classifier-free guidance that is switched off outside an interval."""

import torch
from torch import nn


class EpsNet(nn.Module):
    def __init__(self, channels=4, width=16, classes=10):
        super().__init__()
        self.time = nn.Linear(1, width)
        self.label = nn.Embedding(classes + 1, width)
        self.inp = nn.Conv2d(channels, width, 3, 1, 1)
        self.out = nn.Conv2d(width, channels, 3, 1, 1)

    def forward(self, x, t, label):
        emb = self.time(t.view(-1, 1)) + self.label(label)
        return self.out(torch.tanh(self.inp(x) + emb[:, :, None, None]))


class DPMSolverScheduler:
    def __init__(self, num_train_timesteps=1000, solver_order=2):
        betas = torch.linspace(0.00085**0.5, 0.012**0.5, num_train_timesteps) ** 2
        self.alphas_cumprod = torch.cumprod(1 - betas, 0)
        self.solver_order = solver_order

    def set_timesteps(self, steps):
        self.timesteps = torch.linspace(999, 0, steps + 1).round().long()
        a = self.alphas_cumprod[self.timesteps]
        self.alpha, self.sigma = a.sqrt(), (1 - a).sqrt()
        self.lambdas = self.alpha.log() - self.sigma.log()
        self.model_outputs = [None] * self.solver_order
        self.lower_order_nums = 0

    def step(self, eps, index, sample):
        lam_s, lam_t = self.lambdas[index], self.lambdas[index + 1]
        h = lam_t - lam_s
        x0 = (sample - self.sigma[index] * eps) / self.alpha[index]
        self.model_outputs = self.model_outputs[1:] + [x0]
        decay = torch.expm1(-h)
        prev = self.sigma[index + 1] / self.sigma[index] * sample
        if self.lower_order_nums < self.solver_order - 1:
            self.lower_order_nums += 1
            return prev - self.alpha[index + 1] * decay * x0
        r = (lam_s - self.lambdas[index - 1]) / h
        d1 = (x0 - self.model_outputs[-2]) / r
        return prev - self.alpha[index + 1] * decay * (x0 + 0.5 * d1)


class Pipeline:
    def __init__(self, unet, scheduler, guidance_interval=(0.2, 0.8)):
        self.unet = unet
        self.scheduler = scheduler
        self.guidance_interval = guidance_interval
        self.predict = torch.compile(self._predict, backend="eager")
        self.scheduler_step = torch.compile(scheduler.step, backend="eager")

    def _predict(self, latents, t, labels, null_labels, do_cfg, guidance_scale):
        if not do_cfg:
            return self.unet(latents, t.expand(len(latents)), labels)
        both = torch.cat((latents, latents))
        uncond, cond = self.unet(both, t.expand(len(both)), torch.cat((null_labels, labels))).chunk(2)
        return uncond + guidance_scale * (cond - uncond)

    @torch.no_grad()
    def __call__(self, labels, steps=12, guidance_scale=4.0, seed=0):
        self.scheduler.set_timesteps(steps)
        latents = torch.randn(len(labels), 4, 8, 8, generator=torch.Generator().manual_seed(seed))
        null_labels = torch.full_like(labels, 10)
        lo, hi = self.guidance_interval
        times = self.scheduler.timesteps.float() / 1000
        indices = torch.arange(steps)
        for i in range(steps):
            do_cfg = lo <= i / steps <= hi
            eps = self.predict(latents, times[i], labels, null_labels, do_cfg, guidance_scale)
            latents = self.scheduler_step(eps, indices[i : i + 1], latents)
        return latents


def main():
    torch.manual_seed(0)
    pipeline = Pipeline(EpsNet().eval(), DPMSolverScheduler())
    for seed in range(2):
        latents = pipeline(torch.tensor([1, 7]), seed=seed)
        print(f"seed {seed}: mean {latents.mean():.3f} std {latents.std():.3f}")


if __name__ == "__main__":
    main()
