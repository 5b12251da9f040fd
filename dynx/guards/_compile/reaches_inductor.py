"""Decide whether a backend of the user may call inductor, so that inductor's settings affect the code it compiles."""

from __future__ import annotations

import dis
from functools import partial
from types import FunctionType
from typing import Any

from dynx._bytecode.cells import is_filled
from dynx._bytecode.globals_read import codes_in

# attributes and methods of a GraphModule, its graph and nodes, and of lists, that compile nothing
_HARMLESS = frozenset({"forward", "graph", "nodes", "code", "op", "target", "name", "meta", "append", "extend", "add"})
_PLAIN = (type(None), bool, int, float, str, list, tuple, dict, set)
# opcodes that call anything but a method, or load names from outside the function
_CALLS = frozenset({"PUSH_NULL", "CALL_FUNCTION_EX", "LOAD_GLOBAL", "LOAD_NAME", "IMPORT_NAME", "LOAD_BUILD_CLASS"})


def reaches_inductor(backend: Any) -> bool:
    """Return whether a backend may call inductor; False only if all that its code uses is known not to call inductor.

    `lambda gm, inputs: gm.forward`, for example, cannot call inductor.
    """
    if type(backend) is partial:
        arguments = (*backend.args, *backend.keywords.values())
        return reaches_inductor(backend.func) or not all(type(argument) in _PLAIN for argument in arguments)
    if type(backend) is not FunctionType or vars(backend):
        return True
    cells = [cell.cell_contents for cell in backend.__closure__ or () if is_filled(cell)]
    values = [*cells, *(backend.__defaults__ or ()), *(backend.__kwdefaults__ or {}).values()]
    codes = codes_in(backend.__code__)
    names = {name for code in codes for name in code.co_names}
    calls = any(instruction.opname in _CALLS for code in codes for instruction in dis.get_instructions(code))
    return calls or not names <= _HARMLESS or not all(type(value) in _PLAIN for value in values)
