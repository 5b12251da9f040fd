"""Token by token generation with a stack of Mamba blocks that keep convolution and SSM states in a cache."""

from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class InferenceParams:
    seqlen_offset: int = 0
    conv_states: dict = field(default_factory=dict)
    ssm_states: dict = field(default_factory=dict)


class MambaBlock(nn.Module):
    def __init__(self, dim, layer_idx, d_conv=4, d_state=8):
        super().__init__()
        self.layer_idx = layer_idx
        self.d_conv = d_conv
        self.d_state = d_state
        self.norm = nn.LayerNorm(dim)
        self.conv_weight = nn.Parameter(torch.randn(dim, d_conv) / d_conv)
        self.dt = nn.Linear(dim, dim)
        self.bc = nn.Linear(dim, 2 * d_state)
        self.A = nn.Parameter(-torch.rand(dim, d_state))
        self.out = nn.Linear(dim, dim)

    def forward(self, hidden, params):
        x = self.norm(hidden)
        if params.seqlen_offset == 0:
            conv = x.new_zeros(x.size(0), x.size(1), self.d_conv)
            ssm = x.new_zeros(x.size(0), x.size(1), self.d_state)
        else:
            conv = params.conv_states[self.layer_idx]
            ssm = params.ssm_states[self.layer_idx]
        conv = torch.cat([conv[..., 1:], x.unsqueeze(-1)], dim=-1)
        x = F.silu((conv * self.conv_weight).sum(dim=-1))
        dt = F.softplus(self.dt(x)).unsqueeze(-1)
        b, c = self.bc(x).chunk(2, dim=-1)
        ssm = torch.exp(dt * self.A) * ssm + dt * b.unsqueeze(1) * x.unsqueeze(-1)
        params.conv_states[self.layer_idx] = conv
        params.ssm_states[self.layer_idx] = ssm
        return hidden + self.out((ssm * c.unsqueeze(1)).sum(dim=-1))


class MambaLM(nn.Module):
    def __init__(self, vocab=64, dim=16, depth=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(MambaBlock(dim, i) for i in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.lm_head = nn.Linear(dim, vocab)

    def forward(self, token, params):
        hidden = self.embed(token)
        for block in self.blocks:
            hidden = block(hidden, params)
        return self.lm_head(self.norm(hidden))


@torch.inference_mode()
def generate(model, token, num_tokens):
    params = InferenceParams()
    tokens = []
    for _ in range(num_tokens):
        logits = model(token, params)
        token = logits.argmax(dim=-1)
        tokens.append(token)
        params.seqlen_offset += 1
    return torch.stack(tokens, dim=1), logits


def main():
    torch.manual_seed(0)
    model = MambaLM().eval()
    for block in model.blocks:
        block.compile(backend="eager")
    tokens, logits = generate(model, torch.tensor([3, 7]), num_tokens=8)
    for row, score in zip(tokens.tolist(), logits.logsumexp(dim=-1)):
        print(row, f"{score.item():.4f}")


if __name__ == "__main__":
    main()
