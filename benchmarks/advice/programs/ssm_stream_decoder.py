"""Streams audio frames through gated SSM layers with mamba-style inference params: one prefill, then single steps."""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class InferenceParams:
    max_seqlen: int
    max_batch_size: int
    seqlen_offset: int = 0
    states: dict = field(default_factory=dict)


class GatedSSM(nn.Module):
    def __init__(self, dim, layer_idx):
        super().__init__()
        self.layer_idx = layer_idx
        self.norm = nn.LayerNorm(dim)
        self.in_proj = nn.Linear(dim, 2 * dim)
        self.out_proj = nn.Linear(dim, dim)
        self.log_decay = nn.Parameter(torch.linspace(-3.0, 0.0, dim))

    @property
    def decay(self):
        return torch.exp(-torch.exp(self.log_decay))

    def forward(self, x, params):
        value, gate = self.in_proj(self.norm(x)).chunk(2, dim=-1)
        lag = torch.arange(x.shape[1])[:, None] - torch.arange(x.shape[1])[None]
        kernel = torch.where(lag[..., None] >= 0, self.decay ** lag.clamp(min=0)[..., None], 0.0)
        y = torch.einsum("tsd,bsd->btd", kernel, value)
        params.states[self.layer_idx].copy_(y[:, -1])
        return x + self.out_proj(y * F.silu(gate))

    def step(self, x, params):
        value, gate = self.in_proj(self.norm(x)).chunk(2, dim=-1)
        state = params.states[self.layer_idx]
        state.mul_(self.decay).add_(value)
        return x + self.out_proj(state * F.silu(gate))


class Streamer(nn.Module):
    def __init__(self, features=8, dim=16, layers=4):
        super().__init__()
        self.dim = dim
        self.stem = nn.Linear(features, dim)
        self.layers = nn.ModuleList(GatedSSM(dim, index) for index in range(layers))
        self.head = nn.Linear(dim, features)

    def new_stream(self, batch, max_seqlen):
        states = {layer.layer_idx: torch.zeros(batch, self.dim) for layer in self.layers}
        return InferenceParams(max_seqlen=max_seqlen, max_batch_size=batch, states=states)

    @torch.compile(backend="eager")
    def prefill(self, frames, params):
        x = self.stem(frames)
        for layer in self.layers:
            x = layer(x, params)
        return self.head(x[:, -1])

    @torch.compile(backend="eager")
    def decode(self, frame, params):
        x = self.stem(frame)
        for layer in self.layers:
            x = layer.step(x, params)
        return self.head(x)


@torch.no_grad()
def predict(model, prompt, max_seqlen):
    params = model.new_stream(prompt.shape[0], max_seqlen)
    frames = [model.prefill(prompt, params)]
    params.seqlen_offset += prompt.shape[1]
    while params.seqlen_offset < params.max_seqlen:
        frames.append(model.decode(frames[-1], params))
        params.seqlen_offset += 1
    return torch.stack(frames, dim=1)


def main():
    torch.manual_seed(0)
    model = Streamer().eval()
    for stream, seconds in enumerate((15, 18, 12)):
        frames = predict(model, torch.randn(2, 10, 8), max_seqlen=seconds)
        print(f"stream {stream}: {tuple(frames.shape)} mean {frames.mean().item():.4f} last {frames[0, -1, 0].item():.4f}")


if __name__ == "__main__":
    main()
