"""Samples from a small MM-DiT whose transformer blocks are compiled one by one, the way the diffusers docs recommend."""

import torch
import torch.nn.functional as F
from torch import nn


class JointBlock(nn.Module):
    """Joint attention over image and text tokens, modulated by the timestep embedding."""

    def __init__(self, dim, heads, index, depth):
        super().__init__()
        self.heads = heads
        self.layer_scale = 1.0 / (1.0 + index / depth)
        self.context_pre_only = index == depth - 1
        self.norm_img = nn.LayerNorm(dim, elementwise_affine=False)
        self.norm_txt = nn.LayerNorm(dim, elementwise_affine=False)
        self.modulation = nn.Linear(dim, 4 * dim)
        self.qkv_img = nn.Linear(dim, 3 * dim)
        self.qkv_txt = nn.Linear(dim, 3 * dim)
        self.out_img = nn.Linear(dim, dim)
        self.out_txt = nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(approximate="tanh"), nn.Linear(4 * dim, dim))

    def split(self, qkv):
        batch, length, _ = qkv.shape
        return qkv.view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)

    def forward(self, img, txt, temb):
        shift, scale, gate, gate_mlp = self.modulation(F.silu(temb)).unsqueeze(1).chunk(4, dim=-1)
        q_img, k_img, v_img = self.split(self.qkv_img(self.norm_img(img) * (1 + scale) + shift))
        q_txt, k_txt, v_txt = self.split(self.qkv_txt(self.norm_txt(txt)))
        out = F.scaled_dot_product_attention(
            torch.cat([q_txt, q_img], dim=2), torch.cat([k_txt, k_img], dim=2), torch.cat([v_txt, v_img], dim=2)
        )
        out = out.transpose(1, 2).flatten(2)
        out_txt, out_img = out.split([txt.shape[1], img.shape[1]], dim=1)
        img = img + self.layer_scale * gate * self.out_img(out_img)
        img = img + gate_mlp * self.mlp(img)
        if not self.context_pre_only:
            txt = txt + self.out_txt(out_txt)
        return img, txt


class TinyMMDiT(nn.Module):
    def __init__(self, dim=32, heads=4, depth=5, channels=4):
        super().__init__()
        self.embed = nn.Linear(channels, dim)
        self.time_mlp = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.blocks = nn.ModuleList(JointBlock(dim, heads, index, depth) for index in range(depth))
        self.head = nn.Linear(dim, channels)
        self.dim = dim

    def forward(self, latents, prompt, sigma):
        freqs = torch.exp(-torch.arange(self.dim // 2) / (self.dim // 2) * 4.0)
        angles = sigma[:, None] * 1000 * freqs[None]
        temb = self.time_mlp(torch.cat([angles.cos(), angles.sin()], dim=-1))
        img, txt = self.embed(latents), prompt
        for block in self.blocks:
            img, txt = block(img, txt, temb)
        return self.head(img)


def compile_repeated_blocks(model, **kwargs):
    for module in model.modules():
        if isinstance(module, JointBlock):
            module.compile(**kwargs)


@torch.no_grad()
def sample(model, prompt, steps=4, tokens=16):
    latents = torch.randn(prompt.shape[0], tokens, 4)
    sigmas = torch.linspace(1.0, 0.0, steps + 1)
    for now, following in zip(sigmas[:-1], sigmas[1:]):
        velocity = model(latents, prompt, now.expand(prompt.shape[0]))
        latents = latents + (following - now) * velocity
    return latents


def main():
    torch.manual_seed(0)
    model = TinyMMDiT().eval()
    compile_repeated_blocks(model, backend="eager")
    for number in range(2):
        latents = sample(model, torch.randn(2, 7, 32))
        print(f"image {number}: mean {latents.mean():.4f} std {latents.std():.4f}")


if __name__ == "__main__":
    main()
