"""Torch's shortcut for modules: while no dictionary of a module and those below it changed, their guards are not evaluated.

Torch: `config.use_recursive_dict_tags_for_guards`, on in 2.11 and off from 2.13 on; it marks the modules of a finished tree
(`GuardManagerWrapper.find_tag_safe_roots`), which can be done later too, and never be taken back. Tensors below a marked module
are still looked at from 2.13 on. A class that is assigned to a module is not noticed, nor a change of a function that it
holds, and before Python 3.12 the dictionaries are compared through pointers that may be stale (pytorch#188101).
"""

from __future__ import annotations

import sys
from typing import Any

from dynx._torch.cache.guard_tree import RawNode, tree_of
from dynx._torch.capabilities import require


def mark(guards: Any) -> None:
    """Have torch take the shortcut in an entry; `guards` is its `GuardManagerWrapper`."""
    require("dict_tags")
    guards.find_tag_safe_roots()


def marked(tree: RawNode) -> list[RawNode]:
    """List the modules of a tree where torch takes the shortcut."""
    return [each for each in tree.walk() if each.manager.is_tag_safe_root()]


def would_mark(tree: RawNode) -> list[RawNode]:
    """List the modules of a tree where torch would take the shortcut."""
    require("dict_tags", "guard_manager", "clone_guards")
    from torch._dynamo.guards import GuardManagerWrapper

    copy = GuardManagerWrapper(tree.manager.clone_manager(lambda _: True))
    copy.find_tag_safe_roots()
    pairs = zip(tree.walk(), tree_of(copy).walk(), strict=True)
    return [mine for mine, copied in pairs if copied.manager.is_tag_safe_root()]


def may_read_freed_memory() -> bool:
    """Tell whether the dictionaries are compared through pointers, and not watched."""
    return sys.version_info < (3, 12)


def stand_in(below: list[list[Any]]) -> tuple[Any, dict[str, Any]]:
    """Make a root that takes the shortcut for modules of our own, each with dictionaries and tensors like those given.

    Gives the root and the locals to check: what the shortcut costs can be timed without marking a tree that is in use.
    """
    require("root_guards", "guard_manager_kinds", "dispatch_keys")
    from torch import Tensor
    from torch._C._dynamo.guards import RootGuardManager
    from torch._dynamo.guards import GuardManagerType
    from torch.nn import Module

    root, locals = RootGuardManager(), {}
    kind = GuardManagerType.GUARD_MANAGER
    for number, values in enumerate(below):
        name = f"module{number}"
        module = locals[name] = Module()
        held = vars(module)
        held |= {f"dynx{i}": dict(each) if isinstance(each, dict) else each for i, each in enumerate(values)}
        source = f"L[{name!r}]"
        at_module = root.framelocals_manager((name, number), source, module, kind)
        at_dict = at_module.get_generic_dict_manager(f"{source}.__dict__", held, kind)
        for key, value in held.items():
            if key.startswith("dynx"):
                at = at_dict.dict_getitem_manager(key, f"{source}.{key}", value, kind)
                if isinstance(value, Tensor):
                    _add_tensor(at, value, f"{source}.{key}")
                at.mark_tag_safe()
        at_dict.mark_tag_safe()
        at_module.mark_tag_safe()
        at_module.mark_tag_safe_root()
    return root, locals


def _add_tensor(manager: Any, tensor: Any, name: str) -> None:
    from torch import _C

    keys = _C._dispatch_keys(tensor)
    manager.add_tensor_match_guard(tensor, list(tensor.size()), list(tensor.stride()), name, [name], None, type(tensor), keys)
