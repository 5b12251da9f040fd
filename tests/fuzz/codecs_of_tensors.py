"""Packs and unpacks random tensors with infinities, NaN, the largest and the smallest numbers, with every codec.

python tests/fuzz/codecs_of_tensors.py [--seed 0] [--tensors 1000] [--device cpu]
Infinities and NaN have to stand where they stood, and nowhere else; zeros have to stay zeros, no sign may change, finite
elements are off by no more than the codec's bound. Prints what differs; exits with 1 if something does.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import torch

from dynx.saved import Codec, codecs


class Bound(NamedTuple):
    """The largest error of an element: relative to itself, and to the largest finite element that shares its scale."""

    codec: Codec
    itself: float = 0.0
    largest: float = 0.0  # where all are finite
    beside: float = 0.0  # beside infinities or NaN
    block: int | None = 0  # elements that share a scale; 0 for a row, None for all


BOUNDS = (
    Bound(codecs.bf16(), itself=2**-8),
    Bound(codecs.fp8(), 2**-4, 2**-18, 2**-18),
    Bound(codecs.fp8(per="tensor"), 2**-4, 2**-18, 2**-18, None),
    Bound(codecs.fp8(per="block", block=4), 2**-4, 2**-18, 2**-18, 4),
    Bound(codecs.fp8("e5m2"), 2**-3, 2**-32, 2**-32),
    Bound(codecs.fp8("e5m2", per="tensor"), 2**-3, 2**-32, 2**-32, None),
    Bound(codecs.int8(), 0, 1 / 254, 1 / 252),
    Bound(codecs.int8(per="tensor"), 0, 1 / 254, 1 / 252, None),
    Bound(codecs.int8(per="block", block=3), 0, 1 / 254, 1 / 252, 3),
    Bound(codecs.int4(), 0, 1 / 14, 1 / 12),
)
DTYPES = (torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16)
SHAPES = ((4, 8), (3, 16), (2, 3, 12), (24,), (1, 2), (5, 1), (2, 130), (0, 4), (3, 0), (64, 6))


def tensor_of(numbers: random.Random, *, finite: bool = False) -> torch.Tensor:
    """Return a random tensor: of one magnitude or many, with rows of zeros, and elements that are not numbers."""
    dtype, shape = numbers.choice(DTYPES), numbers.choice(SHAPES)
    generator = torch.Generator().manual_seed(numbers.getrandbits(32))
    limits = torch.finfo(dtype)
    values = torch.randn(shape, generator=generator, dtype=torch.float64)
    kind = numbers.choice(("normal", "normal", "relu", "wide", "large", "small", "zeros"))
    if kind == "relu":
        values = values.relu()
    elif kind == "wide":
        values *= torch.exp(8 * torch.randn(shape, generator=generator, dtype=torch.float64))
    elif kind == "large":
        values *= limits.max
    elif kind == "small":
        values *= limits.tiny
    elif kind == "zeros":
        values *= 0
    values = values.clamp(limits.min, limits.max).to(dtype)
    special = [0.0, limits.max, limits.min, limits.tiny, -limits.tiny, limits.smallest_normal * limits.eps, -0.0]
    special += [] if finite else [float("inf"), float("-inf"), float("nan")]
    for value in numbers.sample(special, numbers.choice((0, 1, 2, 3, len(special)))):
        share = numbers.choice((0.02, 0.3, 1.0)) if value == float("-inf") else numbers.choice((0.02, 0.2))
        values[torch.rand(shape, generator=generator) < share] = value
    return values


def faults(bound: Bound, tensor: torch.Tensor, result: torch.Tensor) -> Iterator[str]:
    """Yield what is wrong with what a codec made of a tensor."""
    if (result.shape, result.dtype) != (tensor.shape, tensor.dtype):
        yield f"shape or dtype: {tuple(result.shape)} {result.dtype}"
        return
    if not torch.equal(result.isnan(), tensor.isnan()):
        yield f"{int((result.isnan() & ~tensor.isnan()).sum())} new NaN, {int((tensor.isnan() & ~result.isnan()).sum())} lost"
    for value in (float("inf"), float("-inf")):
        if not torch.equal(result == value, tensor == value):
            yield f"{value} elsewhere"
    if (result[tensor == 0] != 0).any():
        yield "zeros that are no zeros"
    if (result * tensor.sign() < 0).any():
        yield "signs that change"
    finite = tensor.isfinite() & result.isfinite()
    error = torch.where(finite, result.double() - tensor.double(), 0).abs()
    if (error > _allowed(bound, tensor)).any():
        yield "more than the bound"


def _allowed(bound: Bound, tensor: torch.Tensor) -> torch.Tensor:
    """Return the largest error that each element may have, with the rounding of the result."""
    exact = tensor.double()
    finite = exact.isfinite()
    magnitude = torch.where(finite, exact.abs(), 0)
    top, plain = _shared(magnitude, bound.block), _shared((~finite).double(), bound.block) == 0
    share = torch.where(plain, bound.largest, bound.beside)
    limits = torch.finfo(tensor.dtype)
    computed = torch.finfo(torch.float64 if tensor.dtype is torch.float64 else torch.float32)
    rounding = limits.eps if tensor.element_size() == 2 else 4 * limits.eps
    smallest = computed.tiny * 448  # a scale is no denormal number
    if bound.codec.name == "bf16":
        smallest = 2.0**-133
        magnitude = magnitude.clamp(max=3.4e38)  # the range of bfloat16
        over = torch.where(finite, exact.abs(), 0) - magnitude
        return magnitude * (bound.itself + rounding) + smallest + over * 1.01
    return magnitude * (bound.itself + rounding) + top * (share + rounding) + limits.tiny * limits.eps + smallest


def _shared(values: torch.Tensor, block: int | None) -> torch.Tensor:
    """Return, for each element, the largest of those that share its scale."""
    if values.numel() == 0:
        return values
    if block is None:
        return values.amax().expand(values.shape)
    if block == 0:
        return values.amax(-1, keepdim=True).expand(values.shape)
    last = values.shape[-1]
    blocks = torch.nn.functional.pad(values, (0, -last % block)).unflatten(-1, (-1, block))
    return blocks.amax(-1, keepdim=True).expand(blocks.shape).flatten(-2)[..., :last]


def differences(tensors: int, seed: int, *, device: str = "cpu") -> tuple[list[str], Counter[str]]:
    """Return what is wrong, as text, and how many tensors each codec packed."""
    wrong, packed = [], Counter[str]()
    for number in range(tensors):
        numbers = random.Random(seed * 1_000_003 + number)
        tensor = tensor_of(numbers).to(device)
        for bound in BOUNDS:
            if bound.codec.why_not(tensor):
                continue
            packed[bound.codec.name] += 1
            result = bound.codec.unpack(bound.codec.pack(tensor))
            what = f"tensor {number} of seed {seed}, {tuple(tensor.shape)} {tensor.dtype}, {bound.codec}"
            wrong += [f"{what}: {fault}" for fault in faults(bound, tensor.cpu(), result.cpu())]
    return wrong, packed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tensors", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    wrong, packed = differences(options.tensors, options.seed, device=options.device)
    for line in wrong[:50]:
        print(line)
    for name, count in packed.items():
        print(f"{name:<22} {count:>6} tensors packed, {sum(f', {name}:' in line for line in wrong)} faults")
    print(f"{options.tensors} tensors, {sum(packed.values())} packed, {len(wrong)} faults")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
