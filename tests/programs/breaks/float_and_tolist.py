"""Two tensors are converted to Python numbers: one with float(), the other with tolist()."""
import torch


@torch.compile(backend="eager")
def summarize(scores, thresholds):
    mean = float(scores.mean())  # DX202
    shifted = scores - mean
    limits = thresholds.tolist()  # DX202
    return shifted * 2, limits


torch.manual_seed(0)
summarize(torch.randn(5), torch.tensor([0.1, 0.5]))
