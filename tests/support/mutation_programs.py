"""Programs of one mutation each: every kind of container and object, with every operation that changes it, or only reads it."""

from __future__ import annotations

import collections
import dataclasses
import operator
import re
import typing
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, defaultdict, deque

import torch

import dynx


class L(list):
    pass


class D(dict):
    pass


class S(set):
    pass


class Q(deque):
    pass


class OO(OrderedDict):
    pass


class DD(defaultdict):
    pass


class U(UserDict):
    pass


class UL(UserList):
    pass


class C(Counter):
    pass


class T(tuple):
    pass


class P(typing.NamedTuple):
    first: list
    second: dict


class PA(P):
    """A named tuple with attributes."""


class Counted(list):
    """A list with methods of its own, which call those of list."""

    def __init__(self, items=()):
        super().__init__(items)
        self.calls = 0

    def append(self, item):
        self.calls += 1
        super().append(item)

    def __setitem__(self, index, item):
        self.calls += 1
        super().__setitem__(index, item)


class CountedDict(dict):
    """A dict with methods of its own, which call those of dict."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.calls = 0

    def __setitem__(self, key, value):
        self.calls += 1
        super().__setitem__(key, value)


@dataclasses.dataclass
class Record:
    items: list = dataclasses.field(default_factory=lambda: [1, 2])
    names: D = dataclasses.field(default_factory=lambda: D(a=1))
    step: int = 0


class Plain:
    def __init__(self):
        self.step = 0
        self.items = [1, 2]
        self.tags = S([1])


class Slots:
    __slots__ = ("items", "step", "unset")

    def __init__(self):
        self.step = 0
        self.items = deque([1, 2])


class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.step = 0
        self.items = [1, 2]
        self.register_buffer("count", torch.zeros(2))


def _with_attribute(value):
    value.note = "old"
    return value


SEQUENCES = {
    "list": lambda: [3, 1, 2],
    "list subclass": lambda: L([3, 1, 2]),
    "list subclass with an attribute": lambda: _with_attribute(L([3, 1, 2])),
    "list subclass with methods": lambda: Counted([3, 1, 2]),
    "deque": lambda: deque([3, 1, 2]),
    "deque with room": lambda: deque([3, 1, 2], maxlen=5),
    "full deque": lambda: deque([3, 1, 2], maxlen=3),
    "deque subclass": lambda: Q([3, 1, 2]),
    "full deque subclass": lambda: Q([3, 1, 2], maxlen=3),
    "UserList": lambda: UserList([3, 1, 2]),
    "UserList subclass": lambda: UL([3, 1, 2]),
}
MAPPINGS = {
    "dict": lambda: {"a": 3, "b": 1, "c": 2},
    "dict subclass": lambda: D(a=3, b=1, c=2),
    "dict subclass with an attribute": lambda: _with_attribute(D(a=3, b=1, c=2)),
    "dict subclass with methods": lambda: CountedDict(a=3, b=1, c=2),
    "OrderedDict": lambda: OrderedDict(a=3, b=1, c=2),
    "OrderedDict subclass": lambda: OO(a=3, b=1, c=2),
    "defaultdict": lambda: defaultdict(list, a=3, b=1, c=2),
    "defaultdict subclass": lambda: DD(list, a=3, b=1, c=2),
    "Counter": lambda: Counter(a=3, b=1, c=2),
    "Counter subclass": lambda: C(a=3, b=1, c=2),
    "UserDict": lambda: UserDict(a=3, b=1, c=2),
    "UserDict subclass": lambda: U(a=3, b=1, c=2),
    "ChainMap": lambda: ChainMap({"a": 3}, {"b": 1, "c": 2}),
}
SETS = {"set": lambda: {1, 2, 3}, "set subclass": lambda: S([1, 2, 3])}
OBJECTS = {"dataclass": Record, "object": Plain, "object with slots": Slots, "module": Module}
TUPLES = {"named tuple": lambda: P([1], {"a": 1}), "subclass of a named tuple": lambda: _with_attribute(PA([1], {"a": 1}))}


def statement(code: str):
    """Return a function of one argument `o` that executes a line of code."""
    scope: dict[str, typing.Any] = {"operator": operator, "collections": collections}
    exec(compile(f"def operation(o):\n    {code}\n", f"<{code}>", "exec"), scope)
    return scope["operation"]


def lines(text: str) -> tuple[str, ...]:
    """Return the lines of code in a text, which three spaces separate."""
    return tuple(filter(None, re.split(r"\n|   ", "\n".join(map(str.strip, text.splitlines())))))


ON_SEQUENCES = lines("""
    o.append(9)   o.extend([8, 9])   o.extend(v for v in (8, 9))   o.insert(0, 9)   o.insert(len(o), 9)   o.pop()
    o.remove(1)   o.clear()   o.reverse()   o[0] = 9   o[-1] = 9   del o[0]   del o[-1]   o += [8, 9]
    operator.iadd(o, [9])   o *= 2   o.append(9); o.pop()   o.append(9); o.append(8)   o.append(9); o.clear()
    o.append([1]); o[-1].append(2)   o[0] = o[0]   o.append(9); o[0] = 7   o.append(len(o))   [o.append(v) for v in (8, 9)]
    o[0] += 1   o.append(o.pop())   o.__setitem__(0, 9)   o.append(9); o.remove(3)   o.note = 'new'   len(o)   list(o)
    sum(o)   3 in o   o[0]   [v for v in o]   o == [3]
""")
ON_LISTS = lines("""
    o.sort()   o.sort(reverse=True)   o[1:] = [9]   o[:] = []   del o[1:]   o.pop(0)   o[::2] = [7, 8]   o[:1]   o + [9]
""")
ON_DEQUES = lines("""
    o.appendleft(9)   o.extendleft([8, 9])   o.popleft()   o.rotate(1)   o.append(9); o.popleft()   o.popleft(); o.append(9)
    o.appendleft(9); o.pop()   o.pop(); o.appendleft(9)   o.appendleft(9); o.append(8)   o.maxlen
""")
ON_MAPPINGS = lines("""
    o['a'] = 9   o['d'] = 9   del o['a']   del o['c']   o.pop('a')   o.pop('z', None)   o.popitem()   o.clear()
    o.update(a=9)   o.update({'d': 9, 'a': 8})   o.setdefault('d', 9)   o.setdefault('a', 9)   o |= {'d': 9}
    o['a'] = o.pop('a')   o['a'] += 1   o['d'] = []; o['d'].append(1)   del o['a']; o['a'] = 3   del o['c']; o['c'] = 2
    o['a'] = o['a']   o.note = 'new'   o['a']   o.get('z')   list(o)   list(o.items())   len(o)   'a' in o   o.update()
    o['d'] = 9; del o['d']   for key in list(o): o[key] = 0   o['d'] = {'x': [1]}; o['d']['x'].append(2)
""")
ON_ORDERED = lines("""
    o.move_to_end('a')   o.move_to_end('c')   o.move_to_end('c', last=False)   o.popitem(last=False)
""")
ON_DEFAULTS = lines("""
    o['z']   o['z'].append(1)   o['z'] = 1
""")
ON_COUNTERS = lines("""
    o.update('aab')   o.subtract('a')   o['z'] += 1   o['z']   o += collections.Counter(a=1)
""")
ON_SETS = lines("""
    o.add(9)   o.add(1)   o.discard(1)   o.discard(9)   o.remove(1)   o.clear()   o.pop()   o.update([8, 9])   o |= {9}
    o &= {1}   o -= {1}   o ^= {1, 9}   o.difference_update({1})   o.intersection_update({1})
    o.symmetric_difference_update({1, 9})   o.add(9); o.discard(9)   o.discard(1); o.add(1)   len(o)   1 in o   sorted(o)
    o | {9}   o.note = 'new'
""")
ON_OBJECTS = lines("""
    o.step = 1   o.step += 1   setattr(o, 'step', 2)   o.items.append(9)   o.items = [9]   o.items = o.items   del o.items
    o.step = o.step   o.other = 1   o.__dict__['step'] = 3   o.items += [9]   o.step   len(o.items)   hasattr(o, 'none')
    o.items, o.step = [o.step], 5   o.me = o   object.__setattr__(o, 'step', 4)   o.items.append(o.items.pop())
""")
ON_TUPLES = lines("""
    o.first.append(2)   o.second['b'] = 2   o.note = 'new'   del o.note   o[0].extend([2, 3])   o.first[0] = 9
    o._replace(first=[])   len(o)   o.second.update(a=9)   o[0].clear()
""")


class Program(typing.NamedTuple):
    """A mutation of a container that exists outside of the compiled function, which a list or an attribute may hold."""

    kind: str
    code: str
    holder: str = "argument"

    def __str__(self) -> str:
        return f"{self.kind}: {self.code}" + ("" if self.holder == "argument" else f" ({self.holder})")


def _operations() -> typing.Iterator[tuple[str, str]]:
    for kind in SEQUENCES:
        more = ON_DEQUES if "deque" in kind else ON_LISTS
        yield from ((kind, code) for code in (*ON_SEQUENCES, *more))
    for kind in MAPPINGS:
        more = {"OrderedDict": ON_ORDERED, "defaultdict": ON_DEFAULTS, "Counter": ON_COUNTERS}.get(kind.split()[0], ())
        yield from ((kind, code) for code in (*ON_MAPPINGS, *more))
    yield from ((kind, code) for kind in SETS for code in ON_SETS)
    yield from ((kind, code) for kind in OBJECTS for code in ON_OBJECTS)
    yield from ((kind, code) for kind in TUPLES for code in ON_TUPLES)


MAKERS = {**SEQUENCES, **MAPPINGS, **SETS, **OBJECTS, **TUPLES}
PROGRAMS = tuple(
    Program(kind, code, holder)
    for number, (kind, code) in enumerate(_operations())
    for holder in ("argument", ("list", "attribute", "closure", "global")[number % 4])
)
KINDS = tuple(MAKERS)
_held: typing.Any = None


class Outcome(typing.NamedTuple):
    """What a program did: the state that eager and compiled code leave, and the side effects that were reported as lost."""

    eager: typing.Any
    compiled: typing.Any
    lost: tuple[dynx.effects.Effect, ...]
    recorded: int  # side effects of all graphs

    @property
    def differs(self) -> bool:
        """Whether compiled code leaves other objects than eager code."""
        return self.eager != self.compiled


def run(program: Program) -> Outcome | None:
    """Run a program eagerly and compiled, on objects of its own; None if one of them raises."""
    operation = statement(program.code)
    states = []
    with dynx.watch() as watch:
        for wrap in (lambda function: function, lambda function: torch.compile(function, backend="eager")):
            value = MAKERS[program.kind]()
            call, args = _call(program.holder, operation, value)
            try:
                wrap(call)(*args, torch.ones(2))
            except Exception:  # noqa: BLE001 - what torch does not support
                return None
            states.append(describe(value))
    torch._dynamo.reset()
    effects = [effect for frame in watch.side_effects for effect in frame.effects]
    return Outcome(*states, tuple(effect for effect in effects if effect.is_lost), len(effects))


def _call(holder: str, operation, value):
    if holder == "closure":
        return lambda x: (operation(value), x + 1)[1], ()
    if holder == "global":
        globals()["_held"] = value
        return lambda x: (operation(_held), x + 1)[1], ()
    if holder == "list":
        return lambda held, x: (operation(held[0]), x + 1)[1], ([value],)
    if holder == "attribute":
        box = Plain()
        box.value = value
        return lambda box, x: (operation(box.value), x + 1)[1], (box,)
    return lambda value, x: (operation(value), x + 1)[1], (value,)


def describe(value, seen=()):
    """Return the contents of an object as tuples, without a method that its class may have overridden."""
    if id(value) in seen:
        return "...", seen.index(id(value))
    seen = (*seen, id(value))
    parts = [type(value).__name__]
    if isinstance(value, torch.Tensor):
        parts.append(tuple(value.detach().reshape(-1).tolist()))
    elif isinstance(value, (list, tuple, deque)):
        base = next(cls for cls in (list, tuple, deque) if isinstance(value, cls))
        parts.append(tuple(describe(item, seen) for item in base.__iter__(value)))
    elif isinstance(value, dict):
        base = OrderedDict if isinstance(value, OrderedDict) else dict
        parts.append(tuple((key, describe(item, seen)) for key, item in base.items(value)))
    elif isinstance(value, set):
        parts.append(tuple(sorted(set.__iter__(value))))
    elif not hasattr(value, "__dict__") and not isinstance(value, Slots):
        return value
    attributes = getattr(value, "__dict__", {})
    slots = {name: getattr(value, name) for name in getattr(type(value), "__slots__", ()) if hasattr(value, name)}
    parts.append(
        tuple((name, describe(item, seen)) for name, item in sorted({**attributes, **slots}.items()) if name[0] != "_")
    )
    return tuple(parts)
