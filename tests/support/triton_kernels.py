"""Triton kernels that get addresses in ways that other kernels do not."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _add_indirect(table, flag, x, out, size: tl.constexpr):
    offsets = tl.arange(0, size)
    other = tl.load(table).to(tl.pointer_type(tl.float32))
    extra = tl.load(other + offsets, mask=(offsets < size) & (tl.load(flag) != 0), other=0.0)
    tl.store(out + offsets, tl.load(x + offsets) + extra)


def add_indirect(table, flag, x):
    """Return `x`, plus the tensor whose address is in `table` where `flag` is not 0."""
    out = torch.empty_like(x)
    _add_indirect[(1,)](table, flag, x, out, x.numel())
    return out


@triton.jit
def _read_back(end, out, size: tl.constexpr):
    offsets = tl.arange(0, size)
    begin = end.to(tl.pointer_type(tl.float32)) - size
    tl.store(out + offsets, tl.load(begin + offsets))


def read_back(end, x):
    """Return the tensor like `x` that ends at the address `end`."""
    out = torch.empty_like(x)
    _read_back[(1,)](end, out, x.numel())
    return out


@triton.autotune(configs=[triton.Config({"block": 64}), triton.Config({"block": 128})], key=["count"])
@triton.jit
def _double(x, out, count, block: tl.constexpr):
    offsets = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < count) * 2, mask=offsets < count)


def doubled_by_a_tuned_kernel(x):
    """Return `x * 2`, by a kernel whose configuration is chosen for each size."""
    out = torch.empty_like(x)
    _double[lambda options: (triton.cdiv(x.numel(), options["block"]),)](x, out, x.numel())
    return out
