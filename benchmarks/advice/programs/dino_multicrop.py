"""Self-distillation with multi-crop augmentation: a student sees every crop, a momentum teacher the two global ones."""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn


class ConvBackbone(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, width, 4, 4), nn.GELU(), nn.Conv2d(width, width, 3, 1, 1), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )

    def forward(self, x):
        return self.features(x)


class MultiCropWrapper(nn.Module):
    def __init__(self, backbone, head):
        super().__init__()
        self.backbone = backbone
        self.head = head

    def forward(self, crops):
        sizes = torch.tensor([crop.shape[-1] for crop in crops])
        idx_crops = torch.cumsum(torch.unique_consecutive(sizes, return_counts=True)[1], 0)
        start_idx, output = 0, []
        for end_idx in idx_crops.tolist():
            output.append(self.backbone(torch.cat(crops[start_idx:end_idx])))
            start_idx = end_idx
        return self.head(torch.cat(output))


class DINOLoss:
    def __init__(self, out_dim, student_temp=0.1, teacher_temp=0.04):
        self.center = torch.zeros(1, out_dim)
        self.student_temp = student_temp
        self.teacher_temp = teacher_temp

    def __call__(self, student_out, teacher_out, n_crops):
        student = (student_out / self.student_temp).chunk(n_crops)
        teacher = F.softmax((teacher_out - self.center) / self.teacher_temp, dim=-1).detach().chunk(2)
        total, terms = 0.0, 0
        for iq, q in enumerate(teacher):
            for v, p in enumerate(student):
                if v != iq:
                    total = total - (q * F.log_softmax(p, dim=-1)).sum(-1).mean()
                    terms += 1
        self.center = self.center * 0.9 + teacher_out.detach().mean(0, keepdim=True) * 0.1
        return total / terms


@torch.compile(backend="eager")
def update_teacher(teacher_params, student_params, momentum):
    for k, q in zip(teacher_params, student_params):
        k.mul_(momentum).add_(q.detach(), alpha=1 - momentum)


def cosine_momentum(step, steps, base=0.9):
    return 1 - (1 - base) * (math.cos(math.pi * step / steps) + 1) / 2


def augment(images, n_local=4):
    crops = [images[:, :, :32, :32], images[:, :, -32:, -32:].flip(-1)]
    crops += [images[:, :, 4 * i : 4 * i + 16, 4 * i : 4 * i + 16] for i in range(n_local)]
    return [crop + 0.1 * torch.randn_like(crop) for crop in crops]


def main(steps=8):
    torch.manual_seed(0)
    student_net = MultiCropWrapper(ConvBackbone(), nn.Linear(16, 32))
    teacher_net = copy.deepcopy(student_net)
    student = torch.compile(student_net, backend="eager")
    criterion = DINOLoss(32)
    optimizer = torch.optim.AdamW(student_net.parameters(), lr=1e-3)
    for step in range(steps):
        crops = augment(torch.rand(4, 3, 40, 40))
        with torch.no_grad():
            teacher_out = teacher_net(crops[:2])
        loss = criterion(student(crops), teacher_out, len(crops))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            update_teacher(list(teacher_net.parameters()), list(student_net.parameters()), cosine_momentum(step, steps))
        print(f"step {step} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
