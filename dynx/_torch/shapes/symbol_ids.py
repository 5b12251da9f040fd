"""Replace torch's function that allocates the numbers in the names of symbols, such as 77 in `s77`.

Torch: `ShapeEnv._generate_unique_id(source_name)` starts at `sha256(source_name) % 100` and takes the next number that the
environment has not used. Its one caller, `create_symbol`, uses it for sizes, strides, ints and floats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary, ref

from dynx._torch.capabilities import capability, hook_point
from dynx._torch.hooks import Wrapping, replace
from dynx.errors import UnsupportedTorch

Allocate = Callable[[str, "set[int]"], tuple[int, bool]]  # (source, used numbers) -> (number, is_collision)

_allocated: WeakKeyDictionary[Any, dict[str, bool]] = WeakKeyDictionary()  # by ShapeEnv and source: is_collision


def replace_ids(allocate: Allocate) -> Wrapping:
    """Allocate the numbers of new symbols with `allocate`, in every `ShapeEnv` of the process, until the handle is removed.

    Raises UnsupportedTorch if torch's method is missing or takes other parameters.
    """
    found = capability("symbol_id")
    found.require()
    if found.state != "ok" or len(found.found) != len(hook_point("symbol_id").leading):
        raise UnsupportedTorch(
            f"{found.path} has unexpected parameters: {', '.join(found.found)}; needed for: {found.purpose}\n"
            "  run `dynx doctor` to see what this torch supports"
        )

    last: tuple[Any, dict[str, bool]] = (lambda: None, {})  # weak reference to the last `ShapeEnv`, and its sources

    def _generate_unique_id(self: Any, source_name: str) -> int:
        nonlocal last
        if last[0]() is not self:
            last = ref(self), _allocated.setdefault(self, {})
        used = self.unique_ids
        number, is_collision = allocate(source_name, used)
        used.add(number)
        last[1][source_name] = is_collision
        return number

    return replace(hook_point("symbol_id"), _generate_unique_id)


def allocated_sources(shape_env: Any) -> Mapping[str, bool]:
    """Return, for each source whose symbol dynx numbered, whether the number to which the source hashes was already in use."""
    return dict(_allocated.get(shape_env, {}))
