"""The post-grad pass is a CustomGraphPass with a uuid, which becomes part of the cache key: both caches work."""
import os
import tempfile

os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()
import torch

from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files


class SwapSinForCos(CustomGraphPass):
    def __call__(self, graph):
        for node in graph.nodes:
            if node.target is torch.ops.aten.sin.default:
                node.target = torch.ops.aten.cos.default

    def uuid(self):
        return get_hash_for_files((__file__,))


torch._inductor.config.post_grad_custom_pre_pass = SwapSinForCos()


@torch.compile(backend="inductor")
def wave(x):
    return x.sin() + 1


wave(torch.ones(4))
