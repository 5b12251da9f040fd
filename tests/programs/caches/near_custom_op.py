"""The opaque helper is a registered custom operator with a fake implementation, which both caches accept."""
import os
import tempfile

os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()
import torch


@torch.library.custom_op("cachetest::mystery", mutates_args=())
def mystery(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) * 0.5


@mystery.register_fake
def _(x):
    return torch.empty_like(x)


@torch.compile(backend="inductor")
def run(x):
    return mystery(x) + 1


run(torch.ones(4))
