"""A global step counter is read by the compiled schedule, and ten steps are more than the recompile limit allows."""
import torch

STEP = 0
TOTAL = 10


def decay():
    return 1 - STEP / TOTAL  # DX301


@torch.compile(backend="eager")
def shrink(w):
    direction = w / w.norm()
    return w - direction * decay()


torch.manual_seed(0)
w = torch.randn(4)
while STEP < TOTAL:
    w = shrink(w)
    STEP += 1
