"""Selective checkpointing with a context_fn that has no cache_hash keeps the AOTAutograd cache from being used."""
import os
import tempfile

os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()
import torch

from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts


def policy(ctx, op, *args, **kwargs):
    if op is torch.ops.aten.mm.default:
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE


def contexts():
    return create_selective_checkpoint_contexts(policy)


def block(x, w):
    return torch.sigmoid(x @ w) @ w


@torch.compile(backend="inductor")
def forward(x, w):  # DX402
    return checkpoint(block, x, w, use_reentrant=False, context_fn=contexts).sum()


torch.manual_seed(0)
forward(torch.randn(2, 4), torch.randn(4, 4, requires_grad=True)).backward()
