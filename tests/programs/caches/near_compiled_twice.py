"""The function is compiled, forgotten with torch._dynamo.reset and compiled again: the second time both caches are hit."""
import os
import tempfile

os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()
import torch


def blend(x, y):
    return torch.lerp(x, y, 0.25).relu()


torch.manual_seed(0)
for _ in range(2):
    torch.compile(blend, backend="inductor")(torch.randn(4), torch.randn(4))
    torch._dynamo.reset()
