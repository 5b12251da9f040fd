"""An inpainting pipeline that is run in strict mode, in which a second compile of the transformer is an error."""

from dataclasses import dataclass

import torch
from torch import nn

torch._dynamo.config.error_on_recompile = True


@dataclass
class PipelineOutput:
    latents: torch.Tensor
    steps: int


class TimestepEmbedder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer("freqs", torch.exp(-torch.arange(dim // 2) / dim))
        self.proj = nn.Linear(dim, dim)

    def forward(self, timestep):
        angles = timestep / 1000 * self.freqs
        return self.proj(torch.cat([angles.sin(), angles.cos()]))


class InpaintTransformer(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.time = TimestepEmbedder(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.mask_embed = nn.Linear(1, dim)

    def forward(self, latents, timestep, mask=None):
        hidden = latents + self.time(timestep)
        if mask is not None:
            hidden = hidden + self.mask_embed(mask)
        query, key, value = self.qkv(hidden).chunk(3, dim=-1)
        hidden = nn.functional.scaled_dot_product_attention(query, key, value)
        return latents - self.out(hidden)


class InpaintPipeline:
    def __init__(self, transformer, train_steps=1000):
        self.transformer = torch.compile(transformer, backend="eager", fullgraph=True)
        self.train_steps = train_steps

    def timesteps(self, num_inference_steps):
        return torch.linspace(self.train_steps - 1, 0, num_inference_steps).round()

    @torch.no_grad()
    def __call__(self, latents, mask=None, num_inference_steps=3):
        for t in self.timesteps(num_inference_steps):
            noise = self.transformer(latents, t, mask)
            latents = latents - noise / num_inference_steps
        return PipelineOutput(latents, num_inference_steps)


def main():
    torch.manual_seed(0)
    pipeline = InpaintPipeline(InpaintTransformer().eval())
    latents = torch.randn(1, 12, 16)
    mask = (torch.arange(12) % 3 == 0).float().reshape(1, 12, 1)
    output = pipeline(latents)
    print(f"text to image {output.latents.sum().item():.4f} after {output.steps} steps")
    output = pipeline(latents, mask=mask, num_inference_steps=4)
    print(f"inpainting {output.latents.sum().item():.4f} after {output.steps} steps")


if __name__ == "__main__":
    main()
