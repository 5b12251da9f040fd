"""Record of a test of inductor: whether it can compile for, and load, vector instructions of the CPU."""

from __future__ import annotations

from dataclasses import dataclass

from dynx.records.record import Record


@dataclass(frozen=True, slots=True)
class IsaCheck(Record):
    """One test of vector instructions, which inductor makes in each process that compiles or loads a graph for the CPU.

    With `TORCHINDUCTOR_VEC_ISA_OK=1` in the environment, or `torch._inductor.config.cpp.vec_isa_ok = True`, torch skips the
    tests of AVX2 and AVX512, and uses the best instructions that the CPU has; it still tests AVX512_BF16, AVX512_VNNI and AMX.
    """

    instructions: str  # as torch names them: "avx512", "avx2"
    seconds: float
    passed: bool
    is_skippable: bool = True  # by the setting
