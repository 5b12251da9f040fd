"""Read a call of inductor's test of CPU instructions.

Torch: `VecISA.check_build(code)`. `TORCHINDUCTOR_VEC_ISA_OK=1` skips it for the code `VecISA._avx_code`, not for that of the
extensions AVX512_BF16, AVX512_VNNI and AMX.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class IsaCall(NamedTuple):
    """What one test is about."""

    instructions: str
    is_skippable: bool  # by the setting


def isa_call(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> IsaCall:
    """Read the arguments of a call of `check_build`."""
    from torch._inductor.cpu_vec_isa import VecISA

    code = args[1] if len(args) > 1 else kwargs["code"]
    return IsaCall(str(args[0]), code == VecISA._avx_code)
