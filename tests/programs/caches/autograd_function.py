"""The compiled code applies a custom autograd.Function, which the AOTAutograd cache does not accept by default."""
import os
import tempfile

os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()
import torch


class ClippedExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.clamp(max=3).exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return grad * y


@torch.compile(backend="inductor")
def energy(x):  # DX402
    return ClippedExp.apply(x).sum()


energy(torch.ones(3, requires_grad=True)).backward()
