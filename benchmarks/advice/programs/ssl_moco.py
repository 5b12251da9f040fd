"""Self-supervised pretraining: a student, its moving average as the teacher, and a queue of negatives."""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn

QUEUE, WIDTH = 32, 12


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, WIDTH, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(2, WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, images):
        hidden = self.norm(self.conv(images)).relu().mean((2, 3))
        return F.normalize(self.proj(hidden), dim=-1)


class MoCo(nn.Module):
    def __init__(self, temperature=0.2):
        super().__init__()
        self.student = Encoder()
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)
        self.temperature = temperature
        self.register_buffer("queue", F.normalize(torch.randn(QUEUE, WIDTH), dim=-1))
        self.register_buffer("pointer", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def _follow(self, momentum):
        for slow, fast in zip(self.teacher.parameters(), self.student.parameters()):
            slow.copy_(momentum * slow + (1 - momentum) * fast)

    @torch.no_grad()
    def _enqueue(self, keys):
        places = (self.pointer + torch.arange(keys.shape[0])) % QUEUE
        self.queue.index_copy_(0, places, keys)
        self.pointer.add_(keys.shape[0]).remainder_(QUEUE)

    def forward(self, view_a, view_b, momentum):
        self._follow(momentum)
        query = self.student(view_a)
        with torch.no_grad():
            keys = self.teacher(view_b)
        positive = (query * keys).sum(-1, keepdim=True)
        negative = query @ self.queue.clone().T
        logits = torch.cat([positive, negative], dim=1) / self.temperature
        self._enqueue(keys)
        return F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long))


def views(gen, batch=8):
    images = torch.randn(batch, 3, 16, 16, generator=gen)
    for shift in (1, 2):
        yield images.roll(shift, -1) + 0.1 * torch.randn(images.shape, generator=gen)


def main():
    torch.manual_seed(0)
    model = MoCo()
    step_fn = torch.compile(model, fullgraph=True, backend="aot_eager")
    optimizer = torch.optim.SGD(model.student.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    gen = torch.Generator().manual_seed(2)
    losses = []
    for step in range(10):
        momentum = torch.tensor(1 - 0.01 * (math.cos(math.pi * step / 10) + 1) / 2)
        loss = step_fn(*views(gen), momentum)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.detach())
    print("losses", [round(loss.item(), 2) for loss in losses])
    print("queue position", model.pointer.item())


if __name__ == "__main__":
    main()
