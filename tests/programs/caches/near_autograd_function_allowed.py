"""A custom autograd.Function again, but the script tells the AOTAutograd cache that such functions may be cached."""
import os
import tempfile

os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()
import torch

torch._functorch.config.autograd_cache_allow_custom_autograd_functions = True


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
def energy(x):
    return ClippedExp.apply(x).sum()


energy(torch.ones(3, requires_grad=True)).backward()
