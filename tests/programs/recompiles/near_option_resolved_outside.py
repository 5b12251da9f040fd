"""The options vary per call, but eager code turns them into tensors before the compiled function is called."""
import torch

SHIFTS = {"low": 0.5, "high": 2.0}


@torch.compile(backend="eager")
def emphasize(signal, gain, keep):
    boosted = signal * gain
    return torch.where(keep, boosted, torch.zeros_like(boosted))


def process(signal, level, drop_negative):
    gain = torch.full((1,), SHIFTS[level])
    keep = signal > 0 if drop_negative else torch.ones_like(signal, dtype=torch.bool)
    return emphasize(signal, gain, keep)


torch.manual_seed(0)
for level in ("low", "high"):
    for drop_negative in (False, True):
        process(torch.randn(5), level, drop_negative)
