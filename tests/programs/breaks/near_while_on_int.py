"""while, if and assert steer the compiled function, but all of them look at Python integers and sizes, not at tensors."""
import torch


@torch.compile(backend="eager")
def tree_sum(values):
    assert values.shape[0] > 1, "nothing to add"
    level = values
    rounds = 0
    while level.shape[0] > 1 and rounds < 10:
        if level.shape[0] % 2:
            level = torch.cat([level, torch.zeros(1)])
        level = level[::2] + level[1::2]
        rounds += 1
    return level[0], rounds


torch.manual_seed(0)
for _ in range(2):
    tree_sum(torch.randn(11))
