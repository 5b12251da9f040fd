"""Trains a mean-teacher classifier: the decay of the teacher warms up, gradients are accumulated over micro-batches."""
import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self, drop=0.0):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 32), nn.SiLU())
        self.head = nn.Linear(32, 5)

    def forward(self, x):
        return self.head(self.body(x))


def ema_update(teacher, student, decay):
    """Blend the student's weights into the teacher's."""
    for old, new in zip(teacher, student):
        old.mul_(decay).add_(new, alpha=1 - decay)


class Objective(nn.Module):
    def __init__(self, student, teacher):
        super().__init__()
        self.student = student
        self.teacher = teacher
        self.consistency_weight = 0.0

    def forward(self, x, y):
        logits = self.student(x)
        with torch.no_grad():
            goal = self.teacher(x).softmax(-1)
        loss = F.cross_entropy(logits, y)
        if not torch.isfinite(loss):
            raise RuntimeError("the loss is not finite")
        return loss + self.consistency_weight * F.mse_loss(logits.softmax(-1), goal)


def main():
    torch.manual_seed(0)
    student, teacher = Net(), Net()
    teacher.load_state_dict(student.state_dict())
    teacher.requires_grad_(False)
    objective = Objective(student, teacher)
    loss_of = torch.compile(objective, backend="eager")
    blend = torch.compile(ema_update, backend="eager")
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=8)
    labels_of = torch.randn(16, 5)
    step = 0
    for epoch in range(2):
        for batch in range(4):
            objective.consistency_weight = min(1.0, step / 4)
            optimizer.zero_grad()
            total = 0.0
            for micro in range(2):
                x = torch.randn(12, 16)
                loss = loss_of(x, (x @ labels_of).argmax(-1)) / 2
                loss.backward()
                total += loss.detach()
            optimizer.step()
            schedule.step()
            step += 1
            with torch.no_grad():
                blend(list(teacher.parameters()), list(student.parameters()), min(0.99, (1 + step) / (10 + step)))
            print(f"{epoch} {batch} loss {total:.3f} lr {schedule.get_last_lr()[0]:.3f}")
    x = torch.randn(200, 16)
    agree = (teacher(x).argmax(-1) == (x @ labels_of).argmax(-1)).float().mean()
    print(f"teacher accuracy {agree:.2f}")


main()
