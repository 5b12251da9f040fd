"""Mixed precision training of a regressor with a hand-written dynamic loss scale; validation runs in full precision."""

import torch
import torch.nn.functional as F
from torch import nn


class LossScaler:
    def __init__(self, init_scale=2.0**12, growth_interval=4):
        self.loss_scale = init_scale
        self.growth_interval = growth_interval
        self.good_steps = 0

    def update(self, overflow):
        if overflow:
            self.loss_scale /= 2.0
            self.good_steps = 0
        else:
            self.good_steps += 1
            if self.good_steps % self.growth_interval == 0:
                self.loss_scale *= 2.0


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up, self.down = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        return x + self.down(F.silu(self.up(self.norm(x))))


class Regressor(nn.Module):
    def __init__(self, features=10, dim=32, depth=2):
        super().__init__()
        self.stem = nn.Linear(features, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.head = nn.Linear(dim, 1)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x).squeeze(-1)


@torch.compile(backend="eager")
def unscale_and_clip(grads, inv_scale, max_norm=1.0):
    grads = [grad * inv_scale for grad in grads]
    norm = torch.stack([grad.norm() for grad in grads]).norm()
    if not torch.isfinite(norm):
        return None, norm
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    return [grad * factor for grad in grads], norm


def train_epoch(model, batches, optimizer, scaler):
    total = 0.0
    params = [param for param in model.parameters() if param.requires_grad]
    for x, y in batches:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            pred = model(x)
        loss = F.mse_loss(pred.float(), y)
        grads = torch.autograd.grad(loss * scaler.loss_scale, params)
        clipped, norm = unscale_and_clip(grads, torch.tensor(1.0 / scaler.loss_scale))
        if clipped is not None:
            for param, grad in zip(params, clipped):
                param.grad = grad
            optimizer.step()
        scaler.update(overflow=clipped is None)
        total += loss.item()
    return total / len(batches)


@torch.no_grad()
def evaluate(model, x, y):
    return F.l1_loss(model(x), y).item()


def main():
    torch.manual_seed(0)
    net = Regressor()
    model = torch.compile(net, backend="eager")
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    scaler = LossScaler()
    inputs = torch.randn(160, 10)
    targets = inputs[:, 0] * inputs[:, 1] + inputs[:, 2]
    batches = [(inputs[rows], targets[rows]) for rows in torch.arange(128).split(32)]
    for epoch in range(3):
        loss = train_epoch(model, batches, optimizer, scaler)
        val = evaluate(model, inputs[128:], targets[128:])
        print(f"epoch {epoch + 1} loss {loss:.3f} val mae {val:.3f} scale {scaler.loss_scale:.0f}")


if __name__ == "__main__":
    main()
