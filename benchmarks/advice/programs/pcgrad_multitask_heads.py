"""Trains three tasks on a shared trunk, with gradient surgery, tasks that switch on one after the other and a task log."""
import torch
import torch.nn.functional as F
from torch import nn


class TaskSpec:
    def __init__(self, name, outputs):
        self.name = name
        self.outputs = outputs


class Regression(TaskSpec):
    def loss(self, prediction, target):
        return F.mse_loss(prediction.squeeze(-1), target)


class Classification(TaskSpec):
    def loss(self, prediction, target):
        return F.cross_entropy(prediction, (target > 0).long() + (target > 1).long())


class Ordinal(TaskSpec):
    def loss(self, prediction, target):
        levels = torch.stack([(target > cut).float() for cut in (-1.0, 0.0, 1.0)], -1)
        return F.binary_cross_entropy_with_logits(prediction, levels)


TASKS = [Regression("age", 1), Classification("grade", 3), Ordinal("stage", 3)]


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(20, 32), nn.SiLU(), nn.Linear(32, 32), nn.SiLU())
        self.heads = nn.ModuleDict({task.name: nn.Linear(32, task.outputs) for task in TASKS})

    def forward(self, x, target, spec):
        features = self.trunk(x)
        if isinstance(spec, Regression):
            features = F.layer_norm(features, (32,))
        return spec.loss(self.heads[spec.name](features), target)


def surgery(grads):
    """Project each task's gradient away from those that it conflicts with (PCGrad)."""
    merged = torch.zeros_like(grads[0])
    for i, grad in enumerate(grads):
        changed = grad.clone()
        for j, other in enumerate(grads):
            dot = changed @ other
            if i != j and dot < 0:
                changed = changed - dot / (other @ other) * other
        merged = merged + changed
    return merged / len(grads)


def main():
    torch.manual_seed(3)
    model = MultiTask()
    task_loss = torch.compile(model, backend="eager")
    combine = torch.compile(surgery, backend="eager")
    trunk = list(model.trunk.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    mixing = torch.randn(20, 3)
    for step in range(8):
        active = TASKS[: 1 + step // 2][:3]
        x = torch.randn(32, 20)
        targets = torch.tanh(x @ mixing / 4) * 2
        optimizer.zero_grad()
        shared, report = [], []
        for column, spec in enumerate(active):
            for p in trunk:
                p.grad = None
            loss = task_loss(x, targets[:, column], spec)
            loss.backward()
            shared.append(torch.cat([p.grad.flatten() for p in trunk]))
            report.append(f"{spec.name} {loss.item():.2f}")
        merged = combine(torch.stack(shared).unbind(0))
        for p, grad in zip(trunk, merged.split([p.numel() for p in trunk])):
            p.grad = grad.view_as(p)
        optimizer.step()
        print(step, " ".join(report))


main()
