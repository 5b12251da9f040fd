"""Mixtral-style sparse MoE block that gathers the tokens of every expert, run on a few prompts."""

import torch
from torch import nn
from torch.nn import functional as F


class Expert(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w1 = nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)
        self.w3 = nn.Linear(dim, hidden, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class SparseMoeBlock(nn.Module):
    def __init__(self, dim=16, hidden=32, num_experts=4, top_k=2):
        super().__init__()
        self.top_k = top_k
        self.num_experts = num_experts
        self.gate = nn.Linear(dim, num_experts, bias=False)
        self.experts = nn.ModuleList(Expert(dim, hidden) for _ in range(num_experts))

    def forward(self, hidden_states):
        batch, length, dim = hidden_states.shape
        flat = hidden_states.view(-1, dim)
        weights = F.softmax(self.gate(flat), dim=-1)
        weights, selected = torch.topk(weights, self.top_k, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        expert_mask = F.one_hot(selected, self.num_experts).permute(2, 1, 0)

        output = torch.zeros_like(flat)
        for expert_idx, expert in enumerate(self.experts):
            slot, token = torch.where(expert_mask[expert_idx])
            current = expert(flat[token]) * weights[token, slot, None]
            output.index_add_(0, token, current)
        return output.view(batch, length, dim)


class MoeLayer(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.norm = nn.RMSNorm(dim)
        self.moe = SparseMoeBlock(dim)

    def forward(self, x):
        return x + self.moe(self.norm(x))


def main():
    torch.manual_seed(0)
    layers = nn.Sequential(MoeLayer(), MoeLayer()).eval()
    compiled = torch.compile(layers, backend="eager")
    prompts = [torch.randn(2, 10, 16) for _ in range(4)]
    with torch.no_grad():
        for prompt in prompts:
            out = compiled(prompt)
            print(f"{out.mean().item():.4f} {out.std().item():.4f}")


if __name__ == "__main__":
    main()
