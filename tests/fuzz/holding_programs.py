"""Random modules, as source, whose function changes state held in globals, classes, closures, wrappers, other modules."""

from __future__ import annotations

import random
import textwrap
from typing import NamedTuple

HEADER = """\
import collections, contextvars, functools, threading, types, weakref
import torch
import fuzzed_helper
class Items(list): pass
class Numbers(set): pass
class Table(dict): pass
class Window(collections.deque): pass
"""

# how a state is made, and changed
STATES = {
    "list": ("[1]", "{}.append(len({}))"),
    "list insert": ("[1]", "{}.insert(0, 5)"),
    "list items": ("Items([1])", "{}.append(2)"),
    "list extend": ("Items([1])", "{}.extend([2, 3])"),
    "dict": ("{'n': 0}", "{}['n'] += 1"),
    "dict new": ("{}", "{}.setdefault('a', 3)"),
    "table": ("Table(n=0)", "{}['n'] += 1"),
    "set": ("{1}", "{}.add(2)"),
    "numbers": ("Numbers([1])", "{}.add(2)"),
    "deque": ("collections.deque([1])", "{}.append(2)"),
    "full deque": ("collections.deque([1, 2], maxlen=2)", "{}.append({}[-1] + 1)"),
    "window": ("Window([1])", "{}.append(2)"),
    "ordered": ("collections.OrderedDict(a=1, b=2)", "{}.move_to_end('a')"),
    "default": ("collections.defaultdict(int)", "{}['k'] += 2"),
    "counter": ("collections.Counter('a')", "{}['a'] += 1"),
    "namespace": ("types.SimpleNamespace(n=0)", "{}.n += 1"),
    "nested": ("[[1], {'a': [2]}]", "{}[1]['a'].append(4)"),
    "array": ("[torch.zeros(1)]", "{}[0].add_(1)"),
}

# how a state is held: definitions, how the code that changes it names it, the call in `f`, and how to read it
HOLDERS = {
    "global": (
        """\
s{i} = {make}
def go{i}():
    {change}
""",
        "s{i}",
        "go{i}()",
        "s{i}",
    ),
    "rebound": (
        """\
s{i} = 0
def go{i}():
    global s{i}
    s{i} += 1
""",
        "s{i}",
        "go{i}()",
        "s{i}",
    ),
    "class attribute": (
        """\
class C{i}:
    kept = {make}
    def go(self):
        {change}
""",
        "self.kept",
        "C{i}().go()",
        "C{i}.kept",
    ),
    "inherited": (
        """\
class B{i}:
    kept = {make}
class C{i}(B{i}):
    def go(self):
        {change}
""",
        "self.kept",
        "C{i}().go()",
        "B{i}.kept",
    ),
    "instance": (
        """\
class C{i}:
    def __init__(self):
        self.kept = {make}
    def go(self):
        {change}
o{i} = C{i}()
""",
        "self.kept",
        "o{i}.go()",
        "o{i}.kept",
    ),
    "closure": (
        """\
def make{i}():
    s = {make}
    def go():
        {change}
    return go, lambda: s
go{i}, read{i} = make{i}()
""",
        "s",
        "go{i}()",
        "read{i}()",
    ),
    "method closure": (
        """\
def make{i}():
    s = {make}
    class C:
        def go(self):
            {change}
    return C, lambda: s
C{i}, read{i} = make{i}()
""",
        "s",
        "C{i}().go()",
        "read{i}()",
    ),
    "static closure": (
        """\
def make{i}():
    s = {make}
    class C:
        @staticmethod
        def go():
            {change}
    return C, lambda: s
C{i}, read{i} = make{i}()
""",
        "s",
        "C{i}.go()",
        "read{i}()",
    ),
    "property closure": (
        """\
def make{i}():
    s = {make}
    class C:
        @property
        def go(self):
            {change}
            return 1
    return C(), lambda: s
o{i}, read{i} = make{i}()
""",
        "s",
        "o{i}.go",
        "read{i}()",
    ),
    "wrapper": (
        """\
def deco{i}(fn):
    s = {make}
    @functools.wraps(fn)
    def w(*args):
        {change}
        return fn(*args)
    w.read = lambda: s
    return w
@deco{i}
def go{i}():
    return 1
""",
        "s",
        "go{i}()",
        "go{i}.read()",
    ),
    "partial": (
        """\
def fn{i}(s):
    {change}
s{i} = {make}
go{i} = functools.partial(fn{i}, s{i})
""",
        "s",
        "go{i}()",
        "s{i}",
    ),
    "default": (
        """\
def go{i}(s={make}):
    {change}
""",
        "s",
        "go{i}()",
        "go{i}.__defaults__[0]",
    ),
    "function attribute": (
        """\
def go{i}():
    {change}
go{i}.kept = {make}
""",
        "go{i}.kept",
        "go{i}()",
        "go{i}.kept",
    ),
    "descriptor": (
        """\
class D{i}:
    def __init__(self):
        self.kept = {make}
    def __get__(self, instance, owner):
        {change}
        return 1
    def __set__(self, instance, value):
        pass
class C{i}:
    field = D{i}()
o{i} = C{i}()
""",
        "self.kept",
        "o{i}.field",
        "vars(C{i})['field'].kept",
    ),
    "metaclass": (
        """\
class M{i}(type):
    kept = {make}
class C{i}(metaclass=M{i}):
    pass
def go{i}():
    {change}
""",
        "type(C{i}).kept",
        "go{i}()",
        "M{i}.kept",
    ),
    "table of functions": (
        """\
def make{i}():
    s = {make}
    def go():
        {change}
    return {{'go': go}}, lambda: s
t{i}, read{i} = make{i}()
""",
        "s",
        "t{i}['go']()",
        "read{i}()",
    ),
    "helper module": (
        """\
fuzzed_helper.s{i} = {make}
def go{i}():
    {change}
""",
        "fuzzed_helper.s{i}",
        "go{i}()",
        "fuzzed_helper.s{i}",
    ),
    "module in module": (
        """\
fuzzed_helper.inner.s{i} = {make}
def go{i}():
    {change}
""",
        "fuzzed_helper.inner.s{i}",
        "go{i}()",
        "fuzzed_helper.inner.s{i}",
    ),
    "imported inside": (
        """\
fuzzed_helper.s{i} = {make}
def go{i}():
    from fuzzed_helper import s{i} as s
    {change}
""",
        "s",
        "go{i}()",
        "fuzzed_helper.s{i}",
    ),
    "torch module": (
        """\
class N{i}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = {make}
    def forward(self, x):
        {change}
        return x
n{i} = N{i}()
""",
        "self.kept",
        "n{i}(x)",
        "n{i}.kept",
    ),
    "hook": (
        """\
s{i} = {make}
def hook{i}(*_):
    {change}
n{i} = torch.nn.ReLU()
n{i}.register_forward_hook(hook{i})
""",
        "s{i}",
        "n{i}(x)",
        "s{i}",
    ),
    "class inside": (
        """\
s{i} = {make}
""",
        "s{i}",
        "class L{i}:\n    def go(self):\n        {change}\nL{i}().go()",
        "s{i}",
    ),
}


class Source(NamedTuple):
    """The source of a module with `f(x)` and `read()`, and what it holds how."""

    text: str
    names: tuple[str, ...]


def source(seed: int) -> Source:
    """Return a random module."""
    rng = random.Random(seed)
    parts, calls, reads, names = [HEADER], [], [], []
    for index in range(rng.randint(1, 4)):
        holder, state = rng.choice(sorted(HOLDERS)), rng.choice(sorted(STATES))
        definitions, name, call, read = HOLDERS[holder]
        make, change = STATES[state]
        place = name.format(i=index)
        fields = {"i": index, "make": make, "change": change.replace("{}", place)}
        parts.append(definitions.format(**fields))
        calls += call.format(**fields).splitlines() if holder == "class inside" else [call.format(**fields)]
        reads.append(read.format(i=index))
        names.append(f"{state} in {holder}")
        if rng.random() < 0.3:
            calls.append(rng.choice(["x = x + 1", "torch._dynamo.graph_break()", "y = [x]; x = y[0] * 2", "x = x.relu()"]))
    body = textwrap.indent("\n".join(calls), "    ")
    parts.append(f"def f(x):\n{body}\n    return x * 2\n")
    parts.append(f"def read():\n    return [{', '.join(reads)}]\n")
    return Source("\n".join(parts), tuple(names))
