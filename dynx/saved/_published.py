"""The functions that torch receives as saved-tensor hooks, with names that are the same in every process.

AOTAutograd's cache on disk stores the module and name of the function that a hook calls, and imports the function from there.
Therefore the functions for equal rules have the same name in this module, `pack_<hash>`. Within a process, they are also the
same objects: Dynamo guards on the identity of hooks, so a loop that enters new hooks with equal rules compiles once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule

from dynx._torch.autograd.partition import hook_module, is_fake
from dynx.saved._eager import pack_eagerly, unpack_eagerly
from dynx.saved._graphs.inline import Schedule
from dynx.saved._rules import Rule


@dataclass(frozen=True, slots=True, eq=False)
class Published:
    """Rules, and the pair of saved-tensor hooks that represents them to torch."""

    rules: tuple[Rule, ...]
    validate: bool
    schedule: Schedule
    pack: GraphModule
    unpack: GraphModule


_lock = threading.Lock()
_published: dict[str, Published] = {}
_by_pack: dict[int, Published] = {}  # by the id of the pack hook, which lives as long as the process


def publish(key: str, rules: tuple[Rule, ...], *, validate: bool, schedule: Schedule) -> Published:
    """Return the hooks for `key`, a hash of rules and options; for equal keys, the same object is returned."""
    with _lock:
        if key not in _published:
            pack = _function(f"pack_{key}", lambda value: _pack(value, rules, validate=validate))
            unpack = _function(f"unpack_{key}", unpack_eagerly)
            made = Published(rules, validate, schedule, hook_module(pack, key), hook_module(unpack, key))
            _published[key] = _by_pack[id(made.pack)] = made
        return _published[key]


def published_by(hooks: tuple[Any, Any] | None) -> Published | None:
    """Return the `Published` (rules and options) of a pair of saved-tensor hooks; None for hooks that dynx did not make."""
    return None if hooks is None else _by_pack.get(id(hooks[0]))


def _pack(value: torch.Tensor, rules: tuple[Rule, ...], *, validate: bool) -> Any:
    if is_fake(value):
        return value  # torch calls a hook while it traces; the graphs are edited later
    return pack_eagerly(value, rules, validate=validate)


def _function(name: str, call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def function(value: Any) -> Any:
        return call(value)

    function.__name__ = function.__qualname__ = name
    function.__module__ = __name__
    globals()[name] = function
    return function
