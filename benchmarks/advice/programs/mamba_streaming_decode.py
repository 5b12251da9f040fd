"""Greedy decoding with a small selective state space model; the cache follows mamba_ssm's InferenceParams."""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class InferenceParams:
    max_batch: int
    states: dict = field(default_factory=dict)


class SelectiveSSM(nn.Module):
    def __init__(self, dim, state=8, conv=4, layer_idx=None):
        super().__init__()
        self.layer_idx, self.state, self.conv_width = layer_idx, state, conv
        self.in_proj = nn.Linear(dim, 2 * dim)
        self.conv = nn.Conv1d(dim, dim, conv, groups=dim)
        self.x_proj = nn.Linear(dim, 1 + 2 * state)
        self.dt_proj = nn.Linear(1, dim)
        self.A_log = nn.Parameter(torch.log(torch.arange(1, state + 1).float()).repeat(dim, 1))
        self.D = nn.Parameter(torch.ones(dim))
        self.out_proj = nn.Linear(dim, dim)

    def allocate(self, batch):
        dim = self.D.shape[0]
        return self.D.new_zeros(batch, dim, self.conv_width - 1), self.D.new_zeros(batch, dim, self.state)

    def forward(self, u, params):
        x, gate = self.in_proj(u).chunk(2, dim=-1)
        conv_state, ssm_state = params.states[self.layer_idx]
        window = torch.cat([conv_state, x.transpose(1, 2)], dim=2)
        x = F.silu(self.conv(window)).transpose(1, 2)
        dt, b, c = self.x_proj(x).split([1, self.state, self.state], dim=-1)
        dt = F.softplus(self.dt_proj(dt))
        decay = torch.exp(-dt.unsqueeze(-1) * self.A_log.exp())
        outputs = []
        for i in range(x.shape[1]):
            ssm_state = decay[:, i] * ssm_state + (dt[:, i] * x[:, i]).unsqueeze(-1) * b[:, i].unsqueeze(1)
            outputs.append((ssm_state * c[:, i].unsqueeze(1)).sum(-1))
        params.states[self.layer_idx] = (window[:, :, 1 - self.conv_width :], ssm_state)
        y = torch.stack(outputs, dim=1) + self.D * x
        return self.out_proj(y * F.silu(gate))


class MambaBlock(nn.Module):
    def __init__(self, dim, layer_idx):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.mixer = SelectiveSSM(dim, layer_idx=layer_idx)

    def forward(self, hidden, params):
        return hidden + self.mixer(self.norm(hidden), params)


class MambaLM(nn.Module):
    def __init__(self, vocab=64, dim=24, layers=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(MambaBlock(dim, layer_idx) for layer_idx in range(layers))
        self.norm = nn.LayerNorm(dim)

    def forward(self, tokens, params):
        hidden = self.embed(tokens)
        for block in self.blocks:
            hidden = block(hidden, params)
        return self.norm(hidden) @ self.embed.weight.T


@torch.inference_mode()
def generate(model, prompt, new_tokens):
    """Continue `prompt`, which has shape (length, batch, 1), greedily."""
    params = InferenceParams(max_batch=prompt.shape[1])
    for block in model.blocks:
        params.states[block.mixer.layer_idx] = block.mixer.allocate(params.max_batch)
    for token in prompt:
        logits = model(token, params)
    generated = []
    for _ in range(new_tokens):
        token = logits[:, -1:].argmax(-1)
        generated.append(token)
        logits = model(token, params)
    return torch.cat(generated, dim=1), logits


def main():
    torch.manual_seed(0)
    model = MambaLM().eval()
    model.compile(backend="eager")
    for seed in range(2):
        prompt = torch.randint(0, 64, (6, 2, 1), generator=torch.Generator().manual_seed(seed))
        tokens, logits = generate(model, prompt, new_tokens=8)
        print(f"prompt {seed}: {tokens.tolist()} largest logit {logits.max().item():.4f} spread {logits.std().item():.4f}")


if __name__ == "__main__":
    main()
