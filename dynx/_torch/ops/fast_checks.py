"""Check in a fraction of a microsecond that tensor metadata, classes, torch's settings and dicts are unchanged.

Torch: `TensorGuards`, `GlobalStateGuard` and `RootGuardManager` of `torch._C._dynamo.guards`, from which Dynamo builds guards.
A guard on a dict compares its version, which changes with every change to the dict, even if only a value changes.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dynx._torch.capabilities import require


def layout_check(tensors: Sequence[Any]) -> Callable[..., bool]:
    """Return a predicate that is true if its arguments are tensors with the same metadata as `tensors`.

    It compares type, device, dtype, sizes, strides and requires_grad. It takes one argument for each tensor, and is false if
    an argument is not a tensor.
    """
    require("tensor_guards")
    from torch._C._dynamo.guards import TensorGuards

    return TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check


def change_check(dicts: Sequence[dict[Any, Any]]) -> Callable[[], bool]:
    """Return a predicate that is true while none of the dicts has changed since this call."""
    require("dict_versions")
    root, managers = _guard_managers(dicts)
    for values, manager in zip(dicts, managers, strict=True):
        manager.add_dict_version_guard(values, ["dict"], None)
    return partial(root.check, list(dicts))


def sameness_check(objects: Sequence[Any], functions: Sequence[Any], lists: Sequence[list[Any]]) -> Callable[[], bool]:
    """Return a fast predicate that is true while the state below is unchanged; it makes one call into C++.

    The state is the class of each object, the code of each function, the identity of the elements of each list, and torch's
    global settings (autocast, grad mode, default dtype, determinism and precision). It is also false while a
    `TorchFunctionMode` is active.
    """
    require("type_guards", "id_guards", "length_guards", "function_mode_guard", "global_state_guard", "guard_manager_kinds")
    from torch._C._dynamo.guards import GlobalStateGuard
    from torch._dynamo.guards import GuardManagerType

    kind = GuardManagerType.GUARD_MANAGER
    values = [*objects, *functions, *lists]
    root, managers = _guard_managers(values)
    root.add_global_state_guard(GlobalStateGuard(), ["settings"], None)
    root.add_torch_function_mode_stack_guard([], ["modes"], None)
    held: list[Any] = [type(value) for value in objects]  # keep these alive, so that their id() is not reused
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
    """Return the root of a guard tree that checks a list of these values, and the guard manager of each element."""
    require("guard_manager_kinds")
    from torch._C._dynamo.guards import RootGuardManager
    from torch._dynamo.guards import GuardManagerType

    root: Any = RootGuardManager()
    kind = GuardManagerType.GUARD_MANAGER
    managers = [
        root.list_getitem_manager(key=index, source=f"[{index}]", example_value=None, guard_manager_enum=kind)
        for index in range(len(values))  # torch would read attributes of example values
    ]
    return root, managers


def hooks_of_all_modules() -> list[dict[Any, Any]]:
    """Return the dicts of hooks that run for every module.

    Torch: `torch.nn.modules.module.register_module_forward_hook` and similar functions add hooks to these dicts.
    """
    from torch.nn.modules import module

    names = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks", "_global_backward_pre_hooks")
    return [getattr(module, name) for name in names]


def attributes_of_class(kind: type) -> dict[str, Any]:
    """Return the dict behind the read-only proxy `vars(kind)`, so that `change_check` can detect changes to a class.

    The dict must not be changed. Raises TypeError if Python does not keep the attributes in a dict.
    """
    for value in gc.get_referents(vars(kind)):
        if type(value) is dict:
            return value
    raise TypeError(f"dynx cannot detect changes to class {kind.__name__}: its attributes are not in a dict")
