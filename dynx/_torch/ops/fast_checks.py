"""Checks that take a fraction of a microsecond: the metadata of tensors, classes, settings of torch, and changes to dicts.

Torch: `torch._C._dynamo.guards.TensorGuards`, `GlobalStateGuard` and `RootGuardManager.add_dict_version_guard` and
`add_type_match_guard`, from which Dynamo builds its guards. The version of a dict changes with every change to it, also of a
value.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dynx._torch.capabilities import require


def layout_check(tensors: Sequence[Any]) -> Callable[..., bool]:
    """Return a predicate that checks that tensors match `tensors` in type, device, dtype, sizes, strides and requires_grad.

    It takes as many arguments as there are tensors, and is false if an argument is not a tensor.
    """
    require("tensor_guards")
    from torch._C._dynamo.guards import TensorGuards

    check: Callable[..., bool] = TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
    return check


def change_check(dicts: Sequence[dict[Any, Any]]) -> Callable[[], bool]:
    """Return a predicate that is true while none of the dicts has changed since this call."""
    require("dict_versions")
    root, managers = _guard_managers(dicts)
    for values, manager in zip(dicts, managers, strict=True):
        manager.add_dict_version_guard(values, ["dict"], None)
    return partial(root.check, list(dicts))


def class_check(objects: Sequence[Any]) -> Callable[[], bool]:
    """Return a predicate that is true while the objects have the classes that they have now."""
    require("type_guards")
    classes = list(map(type, objects))
    root, managers = _guard_managers(objects)
    for kind, manager in zip(classes, managers, strict=True):
        manager.add_type_match_guard(id(kind), ["class"], None)
    return partial(root.check, [*objects, *classes])  # the classes live as long: no other class gets the id of one


def settings_check() -> Callable[[], bool]:
    """Return a predicate that is true while torch has the settings that it has now.

    They are autocast, grad mode, default dtype, determinism and precision.
    """
    require("global_state_guard")
    from torch._C._dynamo.guards import GlobalStateGuard

    check: Callable[[], bool] = GlobalStateGuard().check
    return check


def _guard_managers(values: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Return a manager of guards that checks a list of these values, and a manager for each element."""
    require("guard_manager_kinds")
    from torch._C._dynamo.guards import RootGuardManager
    from torch._dynamo.guards import GuardManagerType

    root: Any = RootGuardManager()
    kind = GuardManagerType.GUARD_MANAGER
    managers = [
        root.list_getitem_manager(key=index, source=f"[{index}]", example_value=value, guard_manager_enum=kind)
        for index, value in enumerate(values)
    ]
    return root, managers


def hooks_of_all_modules() -> list[dict[Any, Any]]:
    """Return the dicts of hooks that run for every module.

    Torch: `torch.nn.modules.module.register_module_forward_hook` and its like add to them.
    """
    from torch.nn.modules import module

    names = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks", "_global_backward_pre_hooks")
    return [getattr(module, name) for name in names]


def attributes_of_class(kind: type) -> dict[str, Any]:
    """Return the dict of a class, which `vars` only shows: changes to it are noticed as those of other dicts are.

    It must not be changed. Raises TypeError if Python keeps it in another way.
    """
    for value in gc.get_referents(vars(kind)):
        if type(value) is dict:
            return value
    raise TypeError(f"the attributes of {kind.__name__} are not in a dict")
