"""Texts and bytecode of torch without what differs from run to run in one process."""

from __future__ import annotations

import dis
import re
from types import CodeType


def normalized(text: str) -> str:
    """Replace addresses, object ids, counters in names, and the blanks that align a guard's comment after them."""
    text = re.sub(r"0x[0-9a-f]+|\b\d{9,}\b", "N", text)
    text = re.sub(r"  +#", "  #", text)
    text = re.sub(r"(__compiled_fn_|__resume_at_|__gen_rand_values_|_c)\d+(?:_[0-9a-f_]+)?", r"\1N", text)
    return re.sub(r"(___)\d+", r"\1N", text)


def code_of(code: CodeType) -> list[tuple[str, str]]:
    """Return the instructions with resolved arguments: the order of names in a code object differs from run to run."""
    return [(instruction.opname, normalized(instruction.argrepr)) for instruction in dis.get_instructions(code)]
