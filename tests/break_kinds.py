"""Programs with every kind of graph break that users meet.

Each program defines `f` and its arguments `args`; the innermost line of the break is marked `# here`.
"""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    """A program whose graph breaks."""

    source: str
    top: str | None  # the top of the value stack before the instruction; None if it differs between Python versions
    function: str = "f"  # qualified name of the function with the break


TENSOR = "Tensor(float32, [3])"
KINDS = {
    "print": Kind("def f(x):\n    y = x + 1\n    print('hi', end='')  # here\n    return y\nargs = (torch.ones(3),)", None),
    "logging": Kind(
        "import logging\nlog = logging.getLogger('k')\ndef f(x):\n    y = x + 1\n    log.info('hi')  # here\n    return y\nargs = (torch.ones(3),)",
        "'hi'",
    ),
    "warnings": Kind(
        "import warnings\ndef f(x):\n    y = x + 1\n    warnings.warn('hi')  # here\n    return y\nargs = (torch.ones(3),)",
        "'hi'",
    ),
    "item": Kind("def f(x):\n    y = x.sum().item()  # here\n    return x + y\nargs = (torch.ones(3),)", None),
    "tolist": Kind("def f(x):\n    y = x * 2\n    z = y.tolist()  # here\n    return y + z[0]\nargs = (torch.ones(3),)", None),
    "float": Kind(
        "def f(x):\n    y = x.sum()\n    return x + float(y)  # here\nargs = (torch.ones(3),)", "Tensor(float32, [])"
    ),
    "if": Kind(
        "def f(x):\n    if x.sum() > 0:  # here\n        return x + 1\n    return x\nargs = (torch.ones(3),)",
        "Tensor(bool, [])",
    ),
    "while": Kind(
        "def f(x):\n    y = x * 1\n    while y.sum() < 5:  # here\n        y = y + 1\n    return y\nargs = (torch.ones(3),)",
        None,
    ),
    "assert": Kind(
        "def f(x):\n    assert x.sum() > 0, f'{x}'  # here\n    return x + 1\nargs = (torch.ones(3),)", "Tensor(bool, [])"
    ),
    "nonzero": Kind("def f(x):\n    y = x + 1\n    z = y.nonzero()  # here\n    return z + 1\nargs = (torch.ones(3),)", None),
    "mask": Kind(
        "def f(x):\n    y = x + 1\n    z = y[y > 0]  # here\n    return z + 1\nargs = (torch.ones(3),)", "Tensor(bool, [3])"
    ),
    "disabled function": Kind(
        "@torch.compiler.disable\ndef g(x):\n    return x + 1\ndef f(x):\n    y = x * 2\n    return g(y)  # here\nargs = (torch.ones(3),)",
        TENSOR,
    ),
    "skipped module": Kind(
        "import threading\ndef f(x):\n    y = x * 2\n    threading.current_thread()  # here\n    return y + 1\nargs = (torch.ones(3),)",
        None,
    ),
    "C function": Kind(
        "import _operator, zlib\ndef f(x):\n    y = x * 2\n    n = zlib.crc32(b'ab')  # here\n    return y + n % 2\nargs = (torch.ones(3),)",
        "b'ab'",
    ),
    "time": Kind(
        "import time\ndef f(x):\n    y = x * 2\n    t = time.time()  # here\n    return y + 0 * t\nargs = (torch.ones(3),)",
        None,
    ),
    "explicit": Kind(
        "def f(x):\n    y = x * 2\n    torch._dynamo.graph_break()  # here\n    return y + 1\nargs = (torch.ones(3),)", None
    ),
    "inlined callee": Kind(
        "def g(y):\n    z = y + 1\n    print('hi', end='')  # here\n    return z\ndef f(x):\n    return g(x) * 2\nargs = (torch.ones(3),)",
        None,
        "g",
    ),
    "two levels down": Kind(
        "def h(y):\n    return y.sum().item()  # here\ndef g(y):\n    return h(y) + 1\ndef f(x):\n    return x + g(x)\nargs = (torch.ones(3),)",
        None,
        "h",
    ),
    "for loop": Kind(
        "def f(x):\n    for i in range(2):\n        x = x + 1\n        print(end='')  # here\n    return x\nargs = (torch.ones(3),)",
        None,
    ),
    "try": Kind(
        "def f(x):\n    y = x + 1\n    try:\n        print(end='')  # here\n    finally:\n        y = y + 1\n    return y\nargs = (torch.ones(3),)",
        None,
    ),
    "with": Kind(
        "def f(x):\n    with torch.no_grad():\n        y = x + 1\n        print(end='')  # here\n    return y\nargs = (torch.ones(3),)",
        None,
    ),
    "unknown context manager": Kind(
        "class C:\n    def __enter__(self):\n        return 1\n    def __exit__(self, *a):\n        return False\n"
        "def f(x):\n    with C():\n        y = x + 1\n        print(end='')  # here\n    return y\nargs = (torch.ones(3),)",
        None,
    ),
    "generator": Kind(
        "def g(x):\n    for i in range(2):\n        print(end='')  # here\n        yield x + i\n"
        "def f(x):\n    y = x * 2\n    return y + sum(g(x))\nargs = (torch.ones(3),)",
        None,
        "g",
    ),
    "comprehension": Kind(
        "def g(x):\n    return x.sum().item()  # here\ndef f(x):\n    y = x + 1\n    return y + sum([g(y) for _ in range(2)])\nargs = (torch.ones(3),)",
        None,
        "g",
    ),
    "module": Kind(
        "class Net(torch.nn.Module):\n    def forward(self, x):\n        y = x + 1\n        print(end='')  # here\n        return y\n"
        "net = Net()\ndef f(x):\n    return net(x) * 2\nargs = (torch.ones(3),)",
        None,
        "Net.forward",
    ),
    "property": Kind(
        "class Box:\n    @property\n    def size(self):\n        print(end='')  # here\n        return 2\n"
        "box = Box()\ndef f(x):\n    y = x + 1\n    return y * box.size\nargs = (torch.ones(3),)",
        None,
        "Box.size",
    ),
    "open a file": Kind(
        "import os\ndef f(x):\n    y = x + 1\n    open(os.devnull)  # here\n    return y\nargs = (torch.ones(3),)", None
    ),
    "resize": Kind("def f(x):\n    y = x + 1\n    y.resize_(5)  # here\n    return y\nargs = (torch.ones(3),)", None),
    "data pointer": Kind(
        "def f(x):\n    y = x + 1\n    n = y.data_ptr() % 2  # here\n    return y + n * 0\nargs = (torch.ones(3),)", None
    ),
    "import inside": Kind(
        "def f(x):\n    y = x + 1\n    z = __import__('json')  # here\n    return y\nargs = (torch.ones(3),)", None
    ),
    "backward inside": Kind(
        "def f(x):\n    y = (x * 2).sum()\n    y.backward()  # here\n    return y\nargs = (torch.ones(3, requires_grad=True),)",
        None,
    ),
    "exec": Kind("def f(x):\n    y = x + 1\n    exec('pass')  # here\n    return y\nargs = (torch.ones(3),)", "'pass'"),
    "input shape of an error": Kind(
        "def f(x):\n    y = x + 1\n    return y @ torch.ones(4, 5)  # here\nargs = (torch.ones(3),)", "Tensor(float32, [4, 5])"
    ),
}
