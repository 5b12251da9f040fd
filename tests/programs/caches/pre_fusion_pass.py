"""An experimental scheduler pass is set as a plain callable for one of two compiled functions."""
import os
import tempfile

os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()
import torch


def keep_order(nodes):
    return nodes


@torch.compile(backend="inductor")
def before(x):
    return x + 2


@torch.compile(backend="inductor")
def after(x):  # DX401
    return x * 2


x = before(torch.ones(4))
torch._inductor.config._pre_fusion_custom_pass = keep_order
after(x)
