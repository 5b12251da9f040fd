"""Find out why a backward pass was captured again: compare it with the earlier captures, node after node."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from dynx._torch.autograd.captures import RawCapture
from dynx._torch.autograd.nodes import RawHook, RawNode, is_symbolic
from dynx.records.backward import RecaptureKind

OUTPUTS = "class of the output"
_COUNT = "number of inputs"  # of a node, such as that of `torch.stack`
_INPUTS = "argument inputs"
_CREATE_GRAPH = "argument create_graph"
_MODULE_HOOK = "BackwardHookFunctionBackward"  # the node of `register_full_backward_hook` and of its pre-hook
_NUMBERS = re.compile(r"\(?[-\d, ]+\)?")  # an int, or ints
_NO_NODE = "none: no gradient is needed"


class Difference(NamedTuple):
    """What differs at a node: its number, or None for the whole pass; see `RecaptureReason`."""

    kind: RecaptureKind
    number: int | None
    subject: str
    before: str = ""
    after: str = ""
    hook: RawHook | None = None
    leaves: frozenset[int] = frozenset()  # ids of the parameters that only one of the two passes reaches


HooksOf = Mapping[int, Sequence[RawHook]]  # by the number of a node, from the captured graph


def differences(new: RawCapture, hooks: HooksOf, earlier: Sequence[tuple[RawCapture, HooksOf]]) -> list[Difference]:
    """Return what differs from the most similar earlier capture; empty if nothing that can be read differs.

    torch compares node after node: the most similar capture is the one that differs at the last node.
    """
    if not earlier:
        return [Difference("first", None, "")]
    latest_first = list(reversed(earlier))
    where = [_first(old, old_hooks, new, hooks) for old, old_hooks in latest_first]
    same = [old for (old, _), number in zip(latest_first, where, strict=True) if number is None]
    if same:
        return next(filter(None, (list(_of_sizes(old, new, same)) for old in same)), [])
    last = max(number for number in where if number is not None)
    found = []
    for old, old_hooks in (each for each, number in zip(latest_first, where, strict=True) if number == last):
        here = list(at_node(old, old_hooks, new, hooks, last))
        same = [each for each, other_hooks in latest_first if _first(each, other_hooks, old, old_hooks) is None]
        found.append([*here, *_later(old, old_hooks, new, hooks, here, same)])
    return min(found, key=len)


def _later(
    old: RawCapture,
    old_hooks: HooksOf,
    new: RawCapture,
    hooks: HooksOf,
    found: Sequence[Difference],
    same: Sequence[RawCapture],
) -> Iterator[Difference]:
    """Yield what else differs between passes with the same nodes, which remains when the program avoids what was `found`.

    A difference of many nodes, such as that each parameter has a gradient, is yielded once. `same` are the captures with the
    key of `old`.
    """
    if [node.name for node in old.nodes] != [node.name for node in new.nodes]:
        return
    seen = {_alike(each) for each in found}
    for number in range(len(new.nodes) + 1):
        for each in at_node(old, old_hooks, new, hooks, number):
            if is_certain(each) and _alike(each) not in seen:
                seen.add(_alike(each))
                yield each
    yield from _of_shapes(old, new, same)


def _alike(each: Difference) -> tuple[object, ...]:
    return each.kind, each.subject, each.before, each.after, each.hook and each.hook.function


def _first(old: RawCapture, old_hooks: HooksOf, new: RawCapture, new_hooks: HooksOf) -> int | None:
    """Return the first node at which something that is certain to be in torch's key differs."""
    for number in range(max(len(old.nodes), len(new.nodes)) + 1):
        if any(is_certain(found) for found in at_node(old, old_hooks, new, new_hooks, number)):
            return number
    return None


def is_certain(found: Difference) -> bool:
    """Return whether what differs is certain to be in torch's key of a pass."""
    if found.kind == "shape":
        return False
    if found.kind == "request":
        # a subclass without an effect on autograd has the same key, and so may a pass with create_graph=True
        return found.subject not in (OUTPUTS, _CREATE_GRAPH)
    return found.kind != "structure" or found.subject in ("node", _COUNT) or _NO_NODE in (found.before, found.after)


def _of_sizes(old: RawCapture, new: RawCapture, same: Sequence[RawCapture]) -> Iterator[Difference]:
    """Yield what differs in passes with the same key: sizes, if more of them are dynamic now, and numbers.

    What differed between the captures `same`, which have the key too, is dynamic already.
    """
    if new.sizes > old.sizes:
        yield from _of_shapes(old, new, same)
    for number in range(1, len(new.nodes) + 1):
        values = [raw.nodes[number - 1].values for raw in same]
        for found in at_node(old, {}, new, {}, number):
            is_dynamic = found.kind == "shape" and len({each.get(found.subject) for each in values}) > 1
            if not is_certain(found) and not is_dynamic:
                yield found
    yield from (found for found in at_node(old, {}, new, {}, 0) if not is_certain(found))


def _of_shapes(old: RawCapture, new: RawCapture, same: Sequence[RawCapture]) -> Iterator[Difference]:
    """Yield one difference for each pair of sizes that were the same in the captures `same`, at the first node that has it."""
    seen = set()
    for number, (before, after) in enumerate(zip(old.nodes, new.nodes, strict=True), 1):
        for name in (name for name in before.shapes if name in after.shapes):
            pairs = zip(before.shapes[name], after.shapes[name], strict=False)
            for dim, pair in enumerate(pairs):
                if pair[0] == pair[1] or pair in seen:
                    continue
                if len({raw.nodes[number - 1].shapes[name][dim] for raw in same}) == 1:
                    seen.add(pair)
                    yield Difference("shape", number, f"size {dim} of {name}", str(pair[0]), str(pair[1]))


def at_node(old: RawCapture, old_hooks: HooksOf, new: RawCapture, new_hooks: HooksOf, number: int) -> Iterator[Difference]:
    """Yield what differs at the node with this number: 0 for the whole pass."""
    if number == 0:
        yield from of_request(old, new)
        return
    before, after = (raw.nodes[number - 1] if number <= len(raw.nodes) else None for raw in (old, new))
    if before is None or after is None or before.name != after.name:
        yield _other_node(old, new, number)
        return
    found = [
        *_of_values(before, after, number),
        *_of_hooks(_merged(before.hooks, old_hooks.get(number, ())), _merged(after.hooks, new_hooks.get(number, ())), number),
    ]
    if any(each.subject == "unpack_hook" for each in found):  # what a hook packed is not read
        found = [
            each for each in found if not (each.subject.startswith("saved tensor ") and "absent" in (each.before, each.after))
        ]
    leaves = [{node.parameter for node in raw.nodes if node.parameter is not None} for raw in (old, new)]
    for each in sorted(found, key=_follows):
        if each.kind == "frozen":  # or the gradient of something else is not needed
            each = each._replace(
                leaves=frozenset(leaves[0] ^ leaves[1]), kind="frozen" if leaves[0] != leaves[1] else "structure"
            )
        yield each


def _other_node(old: RawCapture, new: RawCapture, number: int) -> Difference:
    """Return why another node runs: other inputs are asked for, a module has a hook, or the forward pass is another one."""
    if old.targets != new.targets:
        counts = len(old.targets), len(new.targets)
        after = "others" if counts[0] == counts[1] else _tensors(counts[1])
        return Difference("request", None, _INPUTS, _tensors(counts[0]), after)
    was, now = (raw.nodes[number - 1].name if number <= len(raw.nodes) else "the end" for raw in (old, new))
    at = number if number <= len(new.nodes) else None
    old_hooks, new_hooks = (sum(node.name == _MODULE_HOOK for node in raw.nodes) for raw in (old, new))
    if _MODULE_HOOK in (was, now) and old_hooks != new_hooks:
        return Difference("hook", at, "nodes of full backward hooks of modules", str(old_hooks), str(new_hooks))
    return Difference("structure", at, "node", was, now)


def _tensors(count: int) -> str:
    return f"{count} tensor{'s' if count != 1 else ''}" if count else "none"


def _follows(difference: Difference) -> int:
    """Return a key that sorts what may follow from other differences behind them: what the node saved."""
    return 2 if difference.subject.startswith("saved tensor ") else int(difference.kind == "value")


def of_request(old: RawCapture, new: RawCapture) -> Iterator[Difference]:
    """Yield what differs in the call: `backward()` or `grad()`, and the dtype of the gradient that it passes."""
    if old.accumulates != new.accumulates:
        calls = ("torch.autograd.grad()", "backward()")
        yield Difference("request", None, "call of", calls[old.accumulates], calls[new.accumulates])
    if old.create_graph != new.create_graph:
        yield Difference("request", None, _CREATE_GRAPH, str(old.create_graph), str(new.create_graph))
    if len(old.classes) != len(new.classes) and old.nodes and new.nodes:
        yield Difference("request", None, "losses", str(len(old.classes)), str(len(new.classes)))
    elif old.classes != new.classes and old.nodes and new.nodes:
        yield Difference("request", None, OUTPUTS, ", ".join(old.classes), ", ".join(new.classes))
    if old.nodes and new.nodes:
        yield from _of_values(old.nodes[0], new.nodes[0], 1, only=("gradient", "number of dims of gradient"))


def _of_values(before: RawNode, after: RawNode, number: int, only: str | tuple[str, ...] = "") -> Iterator[Difference]:
    names = dict.fromkeys((*before.values, *after.values))
    if before.function != after.function:
        is_compiled = before.function.startswith("aot") and after.function.startswith("aot")
        kind: RecaptureKind = "compiled" if is_compiled else "function"
        subject = "graph of the compiled forward pass" if is_compiled else "custom Function"
        yield Difference(kind, number, subject, before.function, after.function)
        names.pop("key", None)
    for name in names:
        old, new = before.values.get(name, "absent"), after.values.get(name, "absent")
        if name.startswith("input ") and "absent" in (old, new):
            continue  # the number of inputs differs
        if old != new and name == "key":
            yield Difference("function", number, "custom Function", before.function, before.function)
        elif old != new and name.startswith(only):
            yield Difference(_kind(before.name, name, old, new), number, _subject(name), old, new)


def _kind(node: str, name: str, old: str, new: str) -> RecaptureKind:
    if name == _COUNT:
        return "structure"
    if name.startswith("input "):
        return "frozen" if _NO_NODE in (old, new) else "structure"
    if name == ".grad":
        return "grad"
    if (name.startswith(("gradient ", "saved tensor ")) or name == "dtype") and "absent" not in (old, new):
        return "dtype"
    are_numbers = _NUMBERS.fullmatch(old) and _NUMBERS.fullmatch(new)
    return "shape" if are_numbers and is_symbolic(node, name) else "value"


def _subject(name: str) -> str:
    return ".grad of the parameter" if name == ".grad" else name


def _merged(of_tensors: Sequence[RawHook], of_graph: Sequence[RawHook]) -> list[RawHook]:
    """Return the hooks of a node: those of the graph, and those of saved tensors and parameters that the graph lacks."""
    kinds = {hook.kind for hook in of_graph}
    return [*of_graph, *(hook for hook in of_tensors if hook.kind not in kinds)]


def _of_hooks(before: Sequence[RawHook], after: Sequence[RawHook], number: int) -> Iterator[Difference]:
    counts = Counter(hook.kind for hook in before), Counter(hook.kind for hook in after)
    for kind in dict.fromkeys((*counts[0], *counts[1])):
        old, new = counts[0][kind], counts[1][kind]
        if old != new:
            more = after if new > old else before
            hook = next((each for each in reversed(more) if each.kind == kind), None)
            yield Difference("hook", number, kind, _times(old), _times(new), hook)


def _times(count: int) -> str:
    return f"{count} hook{'s' if count != 1 else ''}" if count else "no hook"
