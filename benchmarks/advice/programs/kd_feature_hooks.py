"""Feature distillation (FitNets style): a small student matches the hidden layers of a frozen teacher through forward hooks."""

import torch
import torch.nn.functional as F
from torch import nn


def mlp(width, depth, features=16, classes=4):
    layers, size = [], features
    for _ in range(depth):
        layers += [nn.Linear(size, width), nn.GELU()]
        size = width
    return nn.Sequential(*layers, nn.Linear(size, classes))


class FeatureTap:
    """Keeps the outputs of some layers of a model."""

    def __init__(self, model, layers):
        self.features = []
        self.handles = [model[index].register_forward_hook(self.hook) for index in layers]

    def hook(self, module, inputs, output):
        self.features.append(output)

    def last(self, n):
        return self.features[-n:]

    def remove(self):
        for handle in self.handles:
            handle.remove()


class Distiller:
    def __init__(self, teacher, student, alpha=0.5, temperature=3.0):
        self.teacher, self.student = teacher.eval().requires_grad_(False), student
        self.alpha, self.temperature = alpha, temperature
        self.tap = FeatureTap(teacher, layers=(1, 5))
        self.compiled_teacher = torch.compile(teacher, backend="eager")
        self.proj = nn.ModuleList([nn.Linear(16, 48), nn.Linear(16, 48)])
        self.student_loss = torch.compile(self.student_loss, backend="eager")

    def student_loss(self, x, y, teacher_logits, teacher_features):
        hidden, feature_loss = x, x.new_zeros(())
        taps = iter(zip(self.proj, teacher_features))
        for index, layer in enumerate(self.student):
            hidden = layer(hidden)
            if index in (1, 3):
                proj, target = next(taps)
                feature_loss = feature_loss + F.mse_loss(proj(hidden), target)
        soft = F.kl_div(
            F.log_softmax(hidden / self.temperature, dim=-1),
            F.softmax(teacher_logits / self.temperature, dim=-1),
            reduction="batchmean",
        )
        hard = F.cross_entropy(hidden, y)
        return self.alpha * hard + (1 - self.alpha) * soft * self.temperature**2 + 0.1 * feature_loss

    def step(self, x, y, optimizer):
        with torch.no_grad():
            logits = self.compiled_teacher(x)
        loss = self.student_loss(x, y, logits, self.tap.last(2))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()


def main():
    torch.manual_seed(0)
    distiller = Distiller(mlp(48, 3), mlp(16, 2))
    optimizer = torch.optim.AdamW([*distiller.student.parameters(), *distiller.proj.parameters()], lr=3e-3)
    inputs = torch.randn(96, 16)
    labels = inputs[:, :4].argmax(dim=1)
    for epoch in range(2):
        losses = [distiller.step(inputs[rows], labels[rows], optimizer) for rows in torch.arange(96).view(3, 32)]
        print(f"epoch {epoch + 1} loss {sum(losses) / len(losses):.4f}")
    distiller.tap.remove()


if __name__ == "__main__":
    main()
