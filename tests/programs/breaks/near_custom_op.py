"""The function with the print, the .item() and the C code is a custom operator: opaque to the tracer, but without a break."""
import zlib

import torch


@torch.library.custom_op("shop::checksum", mutates_args=())
def checksum(x: torch.Tensor) -> torch.Tensor:
    code = zlib.crc32(x.numpy().tobytes())
    if x.sum().item() > 1e6:
        print("large input")
    return torch.tensor([code], dtype=torch.int64)


@checksum.register_fake
def _(x):
    return torch.empty(1, dtype=torch.int64)


@torch.compile(backend="eager")
def sign(payload):
    doubled = payload * 2
    return doubled, checksum(doubled) % 97


torch.manual_seed(0)
sign(torch.randn(5))
