"""The global settings dict changes with every epoch, but not in the one entry that the compiled function reads."""
import torch

SETTINGS = {"epoch": 0, "margin": 0.5}


@torch.compile(backend="eager")
def hinge(scores, signs):
    margins = SETTINGS["margin"] - scores * signs
    return margins.clamp(min=0).mean()


torch.manual_seed(0)
for epoch in range(4):
    SETTINGS["epoch"] = epoch
    hinge(torch.randn(6), torch.randn(6).sign())
