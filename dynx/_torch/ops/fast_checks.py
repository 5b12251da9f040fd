"""Checks that take a fraction of a microsecond: the layout of a call's tensors, changes to dicts.

Torch: `torch._C._dynamo.guards.TensorGuards` and `RootGuardManager.add_dict_version_guard`, what guards of compiled
functions are made of. A dict has another version after each change, of a value too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dynx._torch.capabilities import require


def layout_check(tensors: Sequence[Any]) -> Callable[..., bool]:
    """Give what tells whether tensors have the types, devices, dtypes, sizes and strides of these, and need gradients alike.

    It takes as many arguments as there are tensors; what is no tensor does not pass.
    """
    require("tensor_guards")
    from torch._C._dynamo.guards import TensorGuards

    check: Callable[..., bool] = TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
    return check


def change_check(dicts: Sequence[dict[Any, Any]]) -> Callable[[], bool]:
    """Give what tells whether none of some dicts was changed since now."""
    require("dict_versions", "guard_manager_kinds")
    from torch._C._dynamo.guards import RootGuardManager
    from torch._dynamo.guards import GuardManagerType

    root: Any = RootGuardManager()
    held = list(dicts)
    for index, each in enumerate(held):
        child = root.list_getitem_manager(
            key=index, source=f"dicts[{index}]", example_value=each, guard_manager_enum=GuardManagerType.GUARD_MANAGER
        )
        child.add_dict_version_guard(each, [f"dicts[{index}]"], None)
    return partial(root.check, held)
