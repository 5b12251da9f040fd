"""Codecs for saved tensors: each function returns a `Codec` for `saved.rule`.

| codec | stores | error |
|---|---|---|
| `bf16()` | bfloat16 | relative 2^-8 |
| `fp8(format, per)` | 8-bit floating point and a scale for each tensor, row or block | relative 2^-4 (e4m3), 2^-3 (e5m2) |
| `int8(per)` | 8-bit integers and a scale | 1/254 of the largest element that shares the scale |
| `int4()` | 4-bit integers and a scale for each row | 1/14 of the largest element of the row |
| `bits()` | one bit for each element of a mask | none |
| `offload()` | the tensor in pinned memory of the host | none |
| `recompute()` | nothing: backward computes the tensor again | none |

All codecs keep infinities and NaN, and finite elements stay finite. The errors are those for float32 tensors; bfloat16 and
float16 tensors are rounded once more when they are unpacked.
"""

from dynx.saved.codecs._bf16 import bf16
from dynx.saved.codecs._bits import bits
from dynx.saved.codecs._fp8 import fp8
from dynx.saved.codecs._int4 import int4
from dynx.saved.codecs._int8 import int8
from dynx.saved.codecs._offload import offload
from dynx.saved.codecs._recompute import recompute

__all__ = ["bf16", "bits", "fp8", "int4", "int8", "offload", "recompute"]
