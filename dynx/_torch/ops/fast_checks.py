"""Checks that take a fraction of a microsecond: the metadata of tensors, classes, settings of torch, and changes to dicts.

Torch: `torch._C._dynamo.guards.TensorGuards`, `GlobalStateGuard`, and `RootGuardManager` with its `add_…_guard`, from which
Dynamo builds its guards. The version of a dict changes with every change to it, also of a value.
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


def sameness_check(objects: Sequence[Any], functions: Sequence[Any], lists: Sequence[list[Any]]) -> Callable[[], bool]:
    """Return a predicate that is true while all of this is as it is now, in one call of torch.

    It compares the classes of objects, the code of functions, which objects are in lists, settings of torch (autocast, grad
    mode, default dtype, determinism and precision), and that no mode of `__torch_function__` is active.
    """
    require("type_guards", "id_guards", "length_guards", "function_mode_guard", "global_state_guard", "guard_manager_kinds")
    from torch._C._dynamo.guards import GlobalStateGuard
    from torch._dynamo.guards import GuardManagerType

    kind = GuardManagerType.GUARD_MANAGER
    values = [*objects, *functions, *lists]
    root, managers = _guard_managers(values)
    root.add_global_state_guard(GlobalStateGuard(), ["settings"], None)
    root.add_torch_function_mode_stack_guard([], ["modes"], None)
    held: list[Any] = [type(value) for value in objects]  # no other object gets the id of one that lives
    for value, manager in zip(objects, managers, strict=False):
        manager.add_type_match_guard(id(type(value)), ["class"], None)
    for function, manager in zip(functions, managers[len(objects) :], strict=False):
        code = function.__code__
        manager.getattr_manager("__code__", "code", code, kind).add_id_match_guard(id(code), ["code"], None)
        held.append(code)
    for elements, manager in zip(lists, managers[len(objects) + len(functions) :], strict=True):
        manager.add_length_check_guard(len(elements), ["length"], None)
        for index, value in enumerate(elements):
            element = manager.list_getitem_manager(key=index, source=f"[{index}]", example_value=value, guard_manager_enum=kind)
            element.add_id_match_guard(id(value), ["element"], None)
            held.append(value)
    return partial(root.check, [*values, *held])


def _guard_managers(values: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Return a manager of guards that checks a list of these values, and a manager for each element."""
    require("guard_manager_kinds")
    from torch._C._dynamo.guards import RootGuardManager
    from torch._dynamo.guards import GuardManagerType

    root: Any = RootGuardManager()
    kind = GuardManagerType.GUARD_MANAGER
    managers = [
        root.list_getitem_manager(key=index, source=f"[{index}]", example_value=None, guard_manager_enum=kind)
        for index in range(len(values))  # without examples, of which it reads attributes
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
