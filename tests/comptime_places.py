"""Call sites of a callback in traced code, and forms of the callback: the two axes of the comptime matrix.

A call site is a program with one line `@@`, which is replaced by the statement that calls `comptime`; most end with
`run(f, ...)`, which compiles and calls `f`.
"""

from __future__ import annotations

from typing import NamedTuple


class CallSite(NamedTuple):
    """A program with a line `@@`, where the call of `comptime` is inserted."""

    program: str
    hits: int = 1  # how often the inserted call is executed
    function: str = "f"  # qualified name of the function with the line


CALL_SITES = {
    "function": CallSite("""
def f(x):
    y = x + 1
    @@
    return y * 2
run(f, x)
"""),
    "inlined callee": CallSite(
        """
def g(x):
    y = x + 1
    @@
    return y
def f(x):
    return g(x) * 2
run(f, x)
""",
        function="g",
    ),
    "callee called twice": CallSite(
        """
def g(x):
    y = x + 1
    @@
    return y
def f(x):
    return g(g(x))
run(f, x)
""",
        hits=2,
        function="g",
    ),
    "for loop": CallSite(
        """
def f(x):
    for i in range(3):
        y = x + i
        @@
    return y
run(f, x)
""",
        hits=3,
    ),
    "while loop": CallSite(
        """
def f(x):
    y, i = x, 0
    while i < 2:
        y, i = y + i, i + 1
        @@
    return y
run(f, x)
""",
        hits=2,
    ),
    "with block": CallSite("""
def f(x):
    with torch.no_grad():
        y = x + 1
        @@
    return y
run(f, x)
"""),
    "try block": CallSite("""
def f(x):
    try:
        y = x + 1
        @@
    finally:
        z = 1
    return y + z
run(f, x)
"""),
    "except block": CallSite("""
def f(x):
    y = x + 1
    try:
        raise ValueError
    except ValueError:
        @@
    return y
run(f, x)
"""),
    "generator": CallSite(
        """
def g(x):
    for i in range(2):
        y = x + i
        @@
        yield y
def f(x):
    return sum(g(x))
run(f, x)
""",
        hits=2,
        function="g",
    ),
    "comprehension": CallSite(
        """
def g(x, i):
    y = x + i
    @@
    return y
def f(x):
    return sum([g(x, i) for i in range(3)])
run(f, x)
""",
        hits=3,
        function="g",
    ),
    "closure": CallSite(
        """
def f(x):
    def inner(z):
        y = z + 1
        @@
        return y
    return inner(x) + inner(x)
run(f, x)
""",
        hits=2,
        function="f.<locals>.inner",
    ),
    "module": CallSite(
        """
class Net(torch.nn.Module):
    def forward(self, x):
        y = x + 1
        @@
        return y
run(Net(), x)
""",
        function="Net.forward",
    ),
    "method": CallSite(
        """
class Box:
    def go(self, x):
        y = x + 1
        @@
        return y
box = Box()
def f(x):
    return box.go(x)
run(f, x)
""",
        function="Box.go",
    ),
    "context manager": CallSite(
        """
import contextlib
@contextlib.contextmanager
def around(x):
    y = x + 1
    @@
    yield y
def f(x):
    with around(x) as y:
        return y * 2
run(f, x)
""",
        function="around",
    ),
    "resume function": CallSite("""
def f(x):
    torch._dynamo.graph_break()
    y = x + 1
    @@
    return y
run(f, x)
"""),
    "before three breaks": CallSite("""
def f(x):
    y = x + 1
    @@
    y = y + 1
    torch._dynamo.graph_break()
    y = y + 1
    torch._dynamo.graph_break()
    y = y + 1
    torch._dynamo.graph_break()
    return y
run(f, x)
"""),
    "between breaks": CallSite("""
def f(x):
    y = x + 1
    torch._dynamo.graph_break()
    y = y + 1
    torch._dynamo.graph_break()
    y = y + 1
    @@
    y = y + 1
    torch._dynamo.graph_break()
    return y + 1
run(f, x)
"""),
    "callee that breaks after": CallSite(
        """
def g(x):
    y = x + 1
    @@
    torch._dynamo.graph_break()
    return y + 1
def f(x):
    return g(x) * 2
run(f, x)
""",
        function="g",
    ),
    "three restarts": CallSite("""
def f(x):
    y = x + 1
    @@
    h(y)
    y = y + len(seen)
    seen.append(1)
    h(y)
    return y
seen = []
@torch._dynamo.disable
def h(y):
    pass
run(f, x)
"""),
    "cond branch": CallSite(
        """
def f(x):
    def yes(x):
        y = x.sin()
        @@
        return y
    def no(x):
        return x.cos()
    return torch.cond(x.sum() > 0, yes, no, (x,))
run(f, x)
""",
        function="f.<locals>.yes",
    ),
    "checkpoint": CallSite(
        """
from torch.utils.checkpoint import checkpoint
def g(x):
    y = x.sin()
    @@
    return y
def f(x):
    return checkpoint(g, x, use_reentrant=False)
run(f, x.clone().requires_grad_())
""",
        function="g",
    ),
    "scan": CallSite(
        """
from torch._higher_order_ops.scan import scan
def step(carry, row):
    y = carry + row
    @@
    return y, y.clone()
def f(x):
    return scan(step, torch.zeros(3), x)[0]
run(f, torch.ones(2, 3))
""",
        function="step",
    ),
    "export": CallSite(
        """
class Net(torch.nn.Module):
    def forward(self, x):
        y = x + 1
        @@
        return y
torch.export.export(Net(), (x,), strict=True)
""",
        function="Net.forward",
    ),
    "compiled autograd hook": CallSite(
        """
def hook(grad):
    y = grad * 2
    @@
    return y
leaf = torch.ones(3, requires_grad=True)
out = leaf * 2
out.register_hook(hook)
with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager", fullgraph=True)):
    out.sum().backward()
""",
        function="hook",
    ),
    "dynamic sizes": CallSite("""
def f(x):
    y = x + x.shape[0]
    @@
    return y
run(f, x, dynamic=True)
"""),
}

# code before the program, and the statement at the call site; every form logs y once for each execution
FORMS = {
    "lambda": ("", 'comptime(lambda ctx: ctx.log(y=ctx.local("y")))'),
    "named function": ("def callback(ctx):\n    ctx.log(y=ctx.local('y'))\n", "comptime(callback)"),
    "decorator": ("", '@comptime\n@@def _(ctx):\n@@    ctx.log(y=ctx.local("y"))'),
    "closure over a symbolic value": ("", "comptime(lambda ctx: ctx.log(y=y))"),
    "closure over a constant": ("", 'name = "y"\n@@comptime(lambda ctx: ctx.log(**{name: ctx.local(name)}))'),
    "closure over an object": (
        "class Options:\n    name = 'y'\noptions = Options()\n",
        "closed_over = options\n@@comptime(lambda ctx: ctx.log(y=ctx.local(closed_over.name)))",
    ),
    "bound method": (
        "class Callback:\n    def method(self, ctx):\n        ctx.log(y=ctx.local('y'))\ncallback = Callback()\n",
        "comptime(callback.method)",
    ),
    "partial": (
        "import functools\ndef log(name, ctx):\n    ctx.log(y=ctx.local(name))\nbound = functools.partial(log, 'y')\n",
        "comptime(bound)",
    ),
    "partial created in place": (
        "import functools\ndef log(name, ctx):\n    ctx.log(y=ctx.local(name))\n",
        "comptime(functools.partial(log, 'y'))",
    ),
    "callable object": (
        "class Callback:\n    def __call__(self, ctx):\n        ctx.log(y=ctx.local('y'))\ncallback = Callback()\n",
        "comptime(callback)",
    ),
    "default arguments": ("", "comptime(lambda ctx, *, value=y, name='y': ctx.log(**{name: value}))"),
    "helper in a closure": ("", "def helper(ctx): ctx.log(y=y)\n@@comptime(lambda ctx: helper(ctx))"),
    "result as a condition": ("", "if comptime(lambda ctx: ctx.log(y=y) or True): y = y + 0"),
    "result as an operand": ("", "y = y * comptime(lambda ctx: ctx.log(y=y) or 1)"),
    "comptime variable as result": ("", "y = comptime(lambda ctx: ctx.log(y=y) or ctx.local('y'))"),
}
