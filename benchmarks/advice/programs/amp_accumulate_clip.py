"""bf16 training with gradient accumulation, norm clipping and an own loss scaler; checkpoints the best epoch."""

import io

import torch
import torch.nn.functional as F
from torch import nn


class LossScaler:
    def __init__(self, init_scale=2.0**8, growth_interval=4):
        self.scale = init_scale
        self.growth_interval = growth_interval
        self.good_steps = 0

    def update(self, finite):
        self.good_steps = self.good_steps + 1 if finite else 0
        if not finite:
            self.scale /= 2
        elif self.good_steps % self.growth_interval == 0:
            self.scale *= 2


class ConvNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3, padding=1)
        self.bn = nn.BatchNorm2d(6)
        self.fc = nn.Linear(6 * 16, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn(self.conv(x))), 2)
        return self.fc(x.flatten(1))


class Trainer:
    def __init__(self, model, accumulate=2, max_norm=1.0):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        self.scaler = LossScaler()
        self.accumulate, self.max_norm = accumulate, max_norm

    @torch.compile(backend="eager")
    def scaled_loss(self, images, labels):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(self.model(images), labels)
        return loss / self.accumulate * self.scaler.scale

    @torch.compile(backend="eager")
    def clip_gradients(self, grads):
        for grad in grads:
            grad.div_(self.scaler.scale)
        norm = torch.linalg.vector_norm(torch.stack([g.norm() for g in grads]))
        if norm > self.max_norm:
            for grad in grads:
                grad.mul_(self.max_norm / (norm + 1e-6))
        return norm

    def optimizer_step(self):
        norm = self.clip_gradients([p.grad for p in self.model.parameters()])
        finite = bool(norm.isfinite())
        if finite:
            self.optimizer.step()
        self.scaler.update(finite)
        self.optimizer.zero_grad()
        return norm.item()


def main():
    torch.manual_seed(2)
    labels = torch.randint(4, (128,))
    images = torch.randn(128, 1, 8, 8) + labels.view(-1, 1, 1, 1) * 0.4
    trainer = Trainer(ConvNet())
    best, checkpoint = float("inf"), io.BytesIO()
    for epoch in range(3):
        total = norm = 0.0
        for step, (x, y) in enumerate(zip(images.split(16), labels.split(16)), 1):
            scale = trainer.scaler.scale
            loss = trainer.scaled_loss(x, y)
            loss.backward()
            total += loss.item() * trainer.accumulate / scale
            if step % trainer.accumulate == 0:
                norm = trainer.optimizer_step()
        if total < best:
            best = total
            checkpoint.seek(0)
            torch.save({"model": trainer.model.state_dict(), "epoch": epoch}, checkpoint)
        print(f"epoch {epoch} loss {total / 8:.2f} norm {norm:.2f} scale {trainer.scaler.scale:g}")
    checkpoint.seek(0)
    print("best epoch", torch.load(checkpoint)["epoch"])


if __name__ == "__main__":
    main()
