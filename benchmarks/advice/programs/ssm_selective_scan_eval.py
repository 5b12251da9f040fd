"""Perplexity of a small Mamba-style language model on documents of different lengths."""

import torch
from torch import nn
from torch.nn import functional as F


class SelectiveSSM(nn.Module):
    def __init__(self, dim, state=4):
        super().__init__()
        self.in_proj = nn.Linear(dim, 2 * dim)
        self.x_proj = nn.Linear(dim, 1 + 2 * state)
        self.dt_proj = nn.Linear(1, dim)
        self.A_log = nn.Parameter(torch.arange(1, state + 1).float().log().repeat(dim, 1))
        self.D = nn.Parameter(torch.ones(dim))
        self.out_proj = nn.Linear(dim, dim)
        self.state = state

    def forward(self, hidden):
        x, gate = self.in_proj(hidden).chunk(2, dim=-1)
        dt, B, C = self.x_proj(x).split([1, self.state, self.state], dim=-1)
        dt = F.softplus(self.dt_proj(dt))
        dA = torch.exp(dt.unsqueeze(-1) * -self.A_log.exp())
        dBx = dt.unsqueeze(-1) * B.unsqueeze(2) * x.unsqueeze(-1)
        h = torch.zeros_like(dBx[:, 0])
        ys = []
        for i in range(x.size(1)):
            h = dA[:, i] * h + dBx[:, i]
            ys.append((h * C[:, i].unsqueeze(1)).sum(dim=-1))
        y = torch.stack(ys, dim=1) + self.D * x
        return self.out_proj(y * F.silu(gate))


class MambaLM(nn.Module):
    def __init__(self, vocab=50, dim=16):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.norm = nn.LayerNorm(dim)
        self.mixer = SelectiveSSM(dim)
        self.lm_head = nn.Linear(dim, vocab)

    def forward(self, input_ids):
        hidden = self.embed(input_ids)
        hidden = hidden + self.mixer(self.norm(hidden))
        return self.lm_head(hidden)


@torch.no_grad()
def evaluate(model, documents):
    total, tokens = 0.0, 0
    for ids in documents:
        logits = model(ids[:, :-1])
        nll = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="sum")
        total += nll.item()
        tokens += ids.size(1) - 1
    return total / tokens


def main():
    torch.manual_seed(0)
    model = MambaLM().eval()
    compiled = torch.compile(model, backend="eager")
    lengths = [12, 17, 9, 21, 14, 25, 11, 19, 16, 23, 12, 17]
    documents = [torch.randint(0, 50, (1, length)) for length in lengths]
    print(f"nll per token {evaluate(compiled, documents):.4f}")


if __name__ == "__main__":
    main()
