"""Switch transformer layer with capacity-limited top-1 routing: two epochs of training, each followed by validation."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class SwitchFFN(nn.Module):
    def __init__(self, dim=16, hidden=32, num_experts=4, capacity_factor=1.25, eval_capacity_factor=2.0):
        super().__init__()
        self.num_experts = num_experts
        self.capacity_factor = capacity_factor
        self.eval_capacity_factor = eval_capacity_factor
        self.router = nn.Linear(dim, num_experts)
        self.w_in = nn.Parameter(torch.randn(num_experts, dim, hidden) * dim**-0.5)
        self.w_out = nn.Parameter(torch.randn(num_experts, hidden, dim) * hidden**-0.5)
        self.dropped = 0

    def forward(self, x):
        tokens = x.flatten(0, 1)
        factor = self.capacity_factor if self.training else self.eval_capacity_factor
        capacity = math.ceil(factor * tokens.size(0) / self.num_experts)

        probs = F.softmax(self.router(tokens), dim=-1)
        gate, expert = probs.max(dim=-1)
        one_hot = F.one_hot(expert, self.num_experts)
        position = (one_hot.cumsum(dim=0) - 1) * one_hot
        keep = (one_hot * (position < capacity)).float()
        self.dropped += tokens.size(0) - int(keep.sum())

        slots = F.one_hot(position.clamp(max=capacity - 1), capacity) * keep.unsqueeze(-1)
        inputs = torch.einsum("nec,nd->ecd", slots, tokens)
        hidden = F.relu(torch.bmm(inputs, self.w_in))
        outputs = torch.bmm(hidden, self.w_out)
        combined = torch.einsum("nec,ecd->nd", slots, outputs) * gate.unsqueeze(-1)
        load = self.num_experts * (keep.mean(dim=0) * probs.mean(dim=0)).sum()
        return x + combined.view_as(x), load


def main():
    torch.manual_seed(0)
    model = SwitchFFN()
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    train = [(torch.randn(4, 8, 16), torch.randn(4, 8, 16)) for _ in range(3)]
    valid = torch.randn(4, 8, 16), torch.randn(4, 8, 16)
    for epoch in range(2):
        model.train()
        for x, target in train:
            y, load = compiled(x)
            loss = F.mse_loss(y, target) + 0.01 * load
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            y, _ = compiled(valid[0])
        print(f"epoch {epoch} train {loss.item():.4f} valid {F.mse_loss(y, valid[1]).item():.4f} dropped {model.dropped}")


if __name__ == "__main__":
    main()
