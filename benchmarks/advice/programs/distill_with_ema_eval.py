"""Distils a teacher into a small student; the exponential moving average of the student is what gets evaluated."""

import torch
import torch.nn.functional as F
from torch import nn


class MLP(nn.Module):
    def __init__(self, features, width, classes, depth):
        super().__init__()
        sizes = [features] + [width] * depth
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        for layer in self.layers:
            x = F.gelu(layer(x))
        return self.head(x)


class EMA:
    def __init__(self, model, decay=0.9):
        self.decay = decay
        self.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}
        self.backup = {}

    @torch.no_grad()
    def update(self, model):
        for name, p in model.named_parameters():
            self.shadow[name].lerp_(p, 1 - self.decay)

    def apply_to(self, model):
        for name, p in list(model.named_parameters()):
            self.backup[name] = p
            owner, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(owner), leaf, nn.Parameter(self.shadow[name], requires_grad=False))

    def restore(self, model):
        for name, p in self.backup.items():
            owner, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(owner), leaf, p)


def kd_loss(student_logits, teacher_logits, labels, T=2.0, alpha=0.7):
    soft = F.kl_div(F.log_softmax(student_logits / T, -1), F.softmax(teacher_logits / T, -1), reduction="batchmean")
    return alpha * T * T * soft + (1 - alpha) * F.cross_entropy(student_logits, labels)


def accuracy(net, x, labels):
    with torch.no_grad():
        return (net(x).argmax(-1) == labels).float().mean().item()


def main():
    torch.manual_seed(11)
    x = torch.randn(320, 10)
    labels = (x[:, :3].sum(1) > 0).long() + (x[:, 3] > 0.5).long()
    train_x, train_y, val_x, val_y = x[:256], labels[:256], x[256:], labels[256:]
    teacher = MLP(10, 48, 3, depth=3).requires_grad_(False).eval()
    student = MLP(10, 16, 3, depth=1)
    ema = EMA(student)
    fast_student = torch.compile(student, backend="eager")
    optimizer = torch.optim.AdamW(student.parameters(), lr=5e-3)
    best = 0.0
    for epoch in range(3):
        for rows in torch.randperm(256).split(64):
            with torch.no_grad():
                targets = teacher(train_x[rows])
            loss = kd_loss(fast_student(train_x[rows]), targets, train_y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            ema.update(student)
        raw = accuracy(fast_student, val_x, val_y)
        ema.apply_to(student)
        averaged = accuracy(fast_student, val_x, val_y)
        ema.restore(student)
        best = max(best, averaged)
        print(f"epoch {epoch} loss {loss.item():.3f} val {raw:.3f} ema {averaged:.3f} best {best:.3f}")


if __name__ == "__main__":
    main()
