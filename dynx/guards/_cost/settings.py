"""Compare settings of torch for checking the guards of a frame: what each costs, and which changes it does not detect.

The settings are dict tags, by which torch skips the guards of modules whose dictionaries have not changed, and the filters of
torch.compiler for `guard_filter_fn`, which drop guards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from dynx._bytecode.safe_read import resolve
from dynx._torch.cache import dict_tags
from dynx._torch.cache.guard_timing import GuardTimes
from dynx._torch.cache.guard_tree import RawNode, is_builtin_module, is_module, is_tensor
from dynx._torch.tracing import render
from dynx.records import GuardNode, GuardSetting

IN_USE = "in use"
DICT_TAGS = "dict tags"

_Drops = Callable[[RawNode, RawNode | None], bool]  # takes a guarded value and the module that contains it

_FILTERS: Mapping[str, _Drops] = {  # functions of torch.compiler
    "skip_guard_on_inbuilt_nn_modules_unsafe": lambda node, module: module is not None and is_builtin_module(module),
    "skip_guard_on_all_nn_modules_unsafe": lambda node, module: module is not None,
    "keep_tensor_guards_unsafe": lambda node, module: not is_tensor(node),
}
_CLASS_ASSIGNED = "a class that is assigned to a module: module.__class__ = Other"
_FUNCTION_CHANGED = "a change of a function stored in a module: what it closes over, its defaults or its code replaced"
_FREED = "before Python 3.12: torch may read freed memory once a submodule was replaced (pytorch#188101)"
_VERIFIED = "no guard is dropped; in tests with generated changes to modules, it missed no others that torch's default notices"


class Planned(NamedTuple):
    """A setting of torch for checking the guards of a frame: its time in ns, and the number of guards it keeps and drops."""

    name: str
    ns: Callable[[], float]  # to be called after the measurement
    kept: int  # number of guards
    dropped: Counter[str]  # numbers of guards by kind


def plan(
    times: GuardTimes, tree: RawNode, guards: GuardNode, locals: Mapping[str, Any], globals: Mapping[str, Any]
) -> list[Planned]:
    """List the settings to compare for the guards of a frame, the setting in use first; prepare `times` to time each of them.

    `tree` is torch's guard tree, `guards` the same tree as a record; the guards hold for the `locals` of the frame.
    """
    total = sum(len(node.guards) for _, node in guards.walk())
    planned = [Planned(IN_USE, lambda: times.whole, total, Counter())]
    if roots := [] if dict_tags.marked(tree) else dict_tags.would_mark(tree):
        below = {id(node) for root in roots for node in root.walk()}
        others = times.add_copy(node for node in tree.walk() if id(node) not in below)
        shortcut = times.add_root(*dict_tags.stand_in([_guarded_values(root, locals, globals) for root in roots]))
        planned.append(Planned(DICT_TAGS, lambda: others() + shortcut(), total, Counter()))
    kinds = {id(raw): [guard.kind for guard in node.guards] for raw, (_, node) in zip(tree.walk(), guards.walk(), strict=True)}
    for name, drops in _FILTERS.items():
        kept = _kept(tree, None, drops)
        dropped: Counter[str] = Counter(kind for raw in _dropped(tree, None, drops) for kind in kinds[id(raw)])
        copy = times.add_copy(kept or [tree])
        ns = _without_ambient(copy, times) if drops(tree, None) else copy
        planned.append(Planned(name, ns, total - dropped.total(), dropped))
    return planned


def settings(frames: Sequence[tuple[list[Planned], int]]) -> tuple[GuardSetting, ...]:
    """Sum the measurements of each setting over all frames: the setting in use first, then the others, cheapest first.

    Each frame is a tuple: the list of its settings, as `plan` returns it, and how often a call runs the frame.
    """
    results = []
    for name in dict.fromkeys(setting.name for planned, _ in frames for setting in planned):
        ns, kept, dropped = 0.0, 0, Counter[str]()
        for planned, times in frames:
            setting = next((setting for setting in planned if setting.name == name), planned[0])
            ns, kept, dropped = ns + setting.ns() * times, kept + setting.kept, dropped + setting.dropped
        if name in (IN_USE, DICT_TAGS) or dropped:
            results.append(_setting(name, ns, kept, dropped))
    return (results[0], *sorted(results[1:], key=lambda setting: setting.ns))


def _setting(name: str, ns: float, kept: int, dropped: Counter[str]) -> GuardSetting:
    if name == IN_USE:
        return GuardSetting(name, ns, kept)
    if name == DICT_TAGS:
        misses = (_CLASS_ASSIGNED, _FUNCTION_CHANGED, *([_FREED] if dict_tags.may_read_freed_memory() else []))
        return GuardSetting(name, ns, kept, misses, _VERIFIED, f'profile.apply("{DICT_TAGS}")')
    total = dropped.total()
    kinds = ", ".join(f"{count} {kind}" for kind, count in dropped.most_common())
    return GuardSetting(
        name,
        ns,
        kept,
        (f"every change that only {total} dropped guards notice: {kinds}",),
        f"counted: {total} of {total + kept} guards are dropped",
        f'torch.compile(..., options={{"guard_filter_fn": torch.compiler.{name}}})',
    )


def _kept(node: RawNode, module: RawNode | None, drops: _Drops) -> list[RawNode]:
    """List the nodes from `node` down whose guards `drops` keeps, and nodes on the path to them; `module` contains `node`."""
    module = node if is_module(node) else module
    below = [kept for child in node.children for kept in _kept(child, module, drops)]
    return [node, *below] if below or not drops(node, module) else []


def _dropped(node: RawNode, module: RawNode | None, drops: _Drops) -> list[RawNode]:
    """List the nodes in the subtree of `node` whose guards `drops` removes; `module` is the nn.Module that contains `node`."""
    module = node if is_module(node) else module
    below = [dropped for child in node.children for dropped in _dropped(child, module, drops)]
    return [node, *below] if drops(node, module) else below


def _without_ambient(copy: Callable[[], float], times: GuardTimes) -> Callable[[], float]:
    """Return a function that subtracts the time of the guards on global state from `copy()`, the time of all copied guards."""
    return lambda: max(0.0, copy() - times.ambient)


def _guarded_values(root: RawNode, locals: Mapping[str, Any], globals: Mapping[str, Any]) -> list[Any]:
    """List the dictionaries and tensors that have guards below `root`, the node of a module."""
    values = [resolve(node.source, locals, globals) for node in root.walk()]
    return [value for value in values if type(value) is dict or render.is_tensor(value)]
