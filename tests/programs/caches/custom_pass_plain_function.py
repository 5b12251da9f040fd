"""A post-grad pass is given as a plain function; torch cannot tell its version, so neither cache is used."""
import os
import tempfile

os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()
import torch


def swap_sin_for_cos(graph):
    for node in graph.nodes:
        if node.target is torch.ops.aten.sin.default:
            node.target = torch.ops.aten.cos.default


torch._inductor.config.post_grad_custom_pre_pass = swap_sin_for_cos


@torch.compile(backend="inductor")
def wave(x):  # DX401
    return x.sin() + 1


wave(torch.ones(4))
