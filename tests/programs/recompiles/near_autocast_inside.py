"""autocast is entered inside the compiled function and around an eager model, never around the compiled call."""
import torch
from torch import nn

torch.manual_seed(0)
teacher = nn.Linear(5, 3)
student = nn.Linear(5, 3)


@torch.compile(backend="eager")
def distill(batch, wanted):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = student(batch)
    return (out.float() - wanted).pow(2).mean()


for _ in range(3):
    batch = torch.randn(4, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        wanted = teacher(batch)
    distill(batch, wanted.float())
