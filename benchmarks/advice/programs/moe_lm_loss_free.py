"""Trains a toy mixture-of-experts language model with token sorting and DeepSeek's loss-free load balancing."""

import torch
import torch.nn.functional as F
from torch import nn


class Expert(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w1 = nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)))


class MoELayer(nn.Module):
    def __init__(self, dim=24, hidden=32, num_experts=4, top_k=2, bias_rate=0.01):
        super().__init__()
        self.num_experts = num_experts
        self.top_k = top_k
        self.bias_rate = bias_rate
        self.router = nn.Linear(dim, num_experts, bias=False)
        self.experts = nn.ModuleList(Expert(dim, hidden) for _ in range(num_experts))
        self.register_buffer("expert_bias", torch.zeros(num_experts))
        self.register_buffer("load", torch.zeros(num_experts))

    def route(self, tokens):
        scores = torch.sigmoid(self.router(tokens))
        chosen = (scores + self.expert_bias).topk(self.top_k, dim=-1).indices
        weights = scores.gather(-1, chosen)
        return weights / weights.sum(dim=-1, keepdim=True), chosen

    def forward(self, x):
        tokens = x.flatten(0, 1)
        weights, chosen = self.route(tokens)
        order = chosen.flatten().argsort(stable=True)
        counts = F.one_hot(chosen.flatten(), self.num_experts).sum(dim=0)
        if self.training:
            self.load += counts
        inputs = tokens[order // self.top_k]
        outputs = []
        for expert, rows in zip(self.experts, inputs.split(counts.tolist())):
            outputs.append(expert(rows))
        mixed = torch.cat(outputs) * weights.flatten()[order, None]
        return torch.zeros_like(tokens).index_add(0, order // self.top_k, mixed).view_as(x)

    @torch.no_grad()
    def update_bias(self):
        self.expert_bias += self.bias_rate * torch.sign(self.load.mean() - self.load)
        self.load.zero_()


class MoELanguageModel(nn.Module):
    def __init__(self, vocab=40, dim=24):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.mix = nn.GRU(dim, dim, batch_first=True)
        self.norm = nn.LayerNorm(dim)
        self.moe = MoELayer(dim)
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        x, _ = self.mix(self.embed(ids))
        return self.head(x + self.moe(self.norm(x)))


def main():
    torch.manual_seed(0)
    model = MoELanguageModel()
    model.moe = torch.compile(model.moe, backend="eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    text = (torch.arange(4000) * 7 + torch.arange(4000) // 11) % 40
    for step in range(8):
        starts = torch.randint(len(text) - 17, (8,))
        ids = torch.stack([text[start : start + 17] for start in starts])
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.moe.update_bias()
        if step % 2 == 1:
            print(f"step {step + 1} loss {loss.item():.4f} bias {[round(b, 2) for b in model.moe.expert_bias.tolist()]}")


if __name__ == "__main__":
    main()
