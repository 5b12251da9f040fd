"""Near miss: the condition on the length is decided while torch traces."""
import torch
import torch.nn.functional as F


@torch.compile(backend="eager", dynamic=True)
def attend(x, is_causal=None):
    is_causal = True if x.size(2) > 1 else False
    return F.scaled_dot_product_attention(x, x, x, is_causal=is_causal) + 1


torch.manual_seed(0)
attend(torch.randn(1, 2, 5, 8))
