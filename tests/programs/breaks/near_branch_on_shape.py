"""The compiled code branches on shapes, dtypes and None, never on the value of a tensor; values go through torch.where."""
import torch


@torch.compile(backend="eager")
def attend(q, k, v, mask=None):
    scores = q @ k.transpose(-1, -2)
    if q.shape[-1] > 4:
        scores = scores / q.shape[-1] ** 0.5
    if mask is not None and mask.dtype == torch.bool:
        scores = torch.where(mask, scores, torch.full_like(scores, -1e9))
    if scores.dim() == 2:
        return scores.softmax(-1) @ v
    return scores.mean(0)


torch.manual_seed(0)
q, k, v = torch.randn(3, 8), torch.randn(5, 8), torch.randn(5, 2)
for _ in range(2):
    attend(q, k, v, torch.rand(3, 5) > 0.5)
