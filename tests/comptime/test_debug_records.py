"""What the debugger's recorder keeps is what was there, it is small, and nothing changes by it."""

from __future__ import annotations

import contextlib
import sys
from array import array
from types import CodeType

import corpus
import pytest
import torch
from fingerprint import alive, fingerprint
from torch._dynamo import symbolic_convert

from dynx._torch import hooks
from dynx._torch.capabilities import hook_point
from dynx._torch.tracing import translator
from dynx._torch.tracing.render import show
from dynx.comptime._debug_session import Session
from dynx.comptime._trail_reader import history, state


def changes(x):
    """Everything of a value that can change while its name stays."""
    items, table, seen = [x], {"k": 1}, set()
    count = 0

    def more(v):
        nonlocal count
        count = count + 1
        items.append(v)
        table[f"k{count}"] = [count]
        return v * count

    y = more(x)
    items[0] = more(y)
    table["k1"].append(2)
    seen.add(1)
    y += more(y)
    y.unsqueeze_(0)
    del table["k"]
    for i, (key, value) in enumerate(table.items()):
        count += i + len(value) + len(key)
    items += [y]
    items.pop()
    return sum(each.sum() for each in items) + count


def passes_on(x, *args, **kwargs):
    def inner(*, scale=2, **rest):
        rest["more"] = [scale]
        return x * scale + len(rest)

    try:
        return inner(**kwargs) + args[0]
    except IndexError:
        return inner()


def yields(x):
    taken = []

    def each():
        for i in range(3):
            taken.append(i)
            yield x * i

    total = sum(each())
    first, *others = taken
    return total + first + len(others)


def method_of_a_dict(x, table=None):
    """While `table.get` lies on the stack: asked for its type, torch guards on every value of the table."""
    return x + table.get("a")


def grows_while_called(x):
    """While `items.append` and `y.add` lie on the stack, the list and the tensor change."""
    items, table = [1], {"x": x, "y": [x]}

    def more(value):
        items.append(len(items))
        y = value.view(1, 3)
        y.squeeze_(0)
        return y.requires_grad, isinstance(table, dict)

    def turn(value):
        value.unsqueeze_(0)
        return 1

    y = x + 1
    items.append(more(y))
    items.append(more(table["y"][0]))
    return y.add(turn(y)) + len(items)


def looks_later(x, table=None):
    """Members of a container that came from outside are looked at one after the other."""
    first = {"all": table, "a": table["a"]}
    second = [table["b"], table["a"], table["c"]]
    is_number = isinstance(second[2], int)  # a range is shown otherwise from here on
    second_too = second
    total = first["a"] + second[0] + (1 if is_number else len(second_too))
    size = x.size()
    return x.reshape(size[0], 1) * total + len(first) + size.numel()


WEIGHT = torch.ones(3, requires_grad=True)


def changes_tensors_in_place(x):
    """Every way in which an operation changes a tensor that is there already, while a list, a tuple and a dict hold it."""
    tensors = [torch.zeros(3), torch.zeros(3), torch.zeros(3), torch.zeros(3), torch.zeros(3), torch.zeros(1, 3)]
    held, table = (tensors[0], [tensors[1]]), {"a": tensors[2], "b": (tensors[5],)}
    tensors[0][0] = WEIGHT[0]
    tensors[1].copy_(WEIGHT)
    table["a"] += WEIGHT
    torch.nn.functional.relu(tensors[3].add_(WEIGHT), True)
    torch.nn.functional.leaky_relu(tensors[4].mul_(WEIGHT), 0.1, inplace=True)
    held_out = torch.empty(0)
    total = torch.cos(x) + torch.add(x, 1, out=held_out) + torch.where(x > 0, x, 1.0)
    table["b"][0].squeeze_(0)
    tensors[5].t_().unsqueeze_(0)
    return total + sum(each.sum() for each in tensors) + held[0].sum() + len(table)


def learns_of_sizes(x, table=None):
    """A symbolic number becomes another when more is known of it, also one that lies in a container."""
    number = x.sum().int().item()
    held = [number, x.size(0), table]
    doubled = x.size(0) * 2
    torch._check(number == 3)
    known = number
    if held[2]["b"] > 1:
        known = number + 0
    if x.size(0) == 3:
        known = known + 1
    return x * known + doubled + len(held)


OWN = (learns_of_sizes, changes_tensors_in_place, changes, passes_on, yields, method_of_a_dict, grows_while_called, looks_later)
PROGRAMS = {
    each.__name__: each for each in (*OWN, *(f for f in vars(corpus).values() if callable(f) and hasattr(f, "__code__")))
}


def arguments(name):
    return (
        (torch.ones(3), {"a": 1, "b": 2, "c": range(3)})
        if name in ("learns_of_sizes", "method_of_a_dict", "looks_later")
        else (torch.ones(3),)
    )


class Oracle:
    """Renders everything anew before each instruction, by no other means than the renderer."""

    def __enter__(self):
        self.seen = []
        self._handle = hooks.wrap(hook_point("step"), self._around)
        return self

    def __exit__(self, *_):
        self._handle.remove()

    def _around(self, original):
        def step(tx):
            if tx.instruction_pointer is not None:
                variables = {name: show(tx, each) for name, each in translator.local_variables(tx).items()}
                self.seen.append((tuple(show(tx, each) for each in tx.stack), variables, len(tx.output.guards.inner)))
            return original(tx)

        return step


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_kept_is_what_was_there(name, dynamic):
    torch._dynamo.reset()
    known = torch._dynamo.config.patch(capture_scalar_outputs=True)
    with known, Session(["c"] * 20, internals=True) as session, Oracle() as oracle:
        torch.compile(PROGRAMS[name], backend="eager", dynamic=dynamic or None)(*arguments(name))
    assert len(session.trail) == len(oracle.seen) > 0
    for row, (stack, variables, guards) in enumerate(oracle.seen):
        kept = state(session.trail, row, internals=True)
        assert (kept.frames[0].stack, dict(kept.frames[0].locals), kept.guards) == (stack, variables, guards), row


LOOK = ["s", "locals", "stack", "w", "p x", "p x.shape", "back 2", "locals", "forward 2", "graph", "guards", "si"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_debugger_changes_nothing(name):
    plain = fingerprint(PROGRAMS[name], arguments(name), contextlib.nullcontext())
    assert plain[2]
    assert fingerprint(PROGRAMS[name], arguments(name), Session(LOOK * 40, internals=False)) == plain


@pytest.mark.parametrize("count", [1, 2, 7, 30, 1000])
def test_back_and_forward_give_the_same_records(count, capsys):
    torch._dynamo.reset()
    with Session(["c", f"back {count}", f"forward {count}", "q"], internals=False) as session:
        torch.compile(changes, backend="eager")(torch.ones(3))
        session.over("over")
    trail = session.trail
    rows = history(trail)
    before = [state(trail, row) for row in rows]
    at = len(rows) - 1 - count
    assert [state(trail, row) for row in rows] == before
    if at >= 0:
        assert before[at] != before[-1]
        assert f"{count} instruction{'s' if count > 1 else ''} back" in capsys.readouterr().out


def size(value):
    """Count the bytes of everything reachable, without code objects, which the program has anyway."""
    seen, total, todo = set(), 0, [value]
    while todo:
        each = todo.pop()
        if id(each) in seen or isinstance(each, (CodeType, type)):
            continue
        seen.add(id(each))
        total += sys.getsizeof(each)
        if isinstance(each, dict):
            todo += [*each, *each.values()]
        elif isinstance(each, (list, tuple, set)):
            todo += each
        elif not isinstance(each, (str, int, array)):
            names = [name for cls in type(each).__mro__ for name in getattr(cls, "__slots__", ())]
            todo += [getattr(each, name) for name in names] + list(vars(each).values() if hasattr(each, "__dict__") else [])
    return total


def test_an_instruction_takes_less_than_200_bytes():
    layer = torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    torch._dynamo.reset()
    with Session(["c"], internals=False) as session:
        torch.compile(model, backend="eager")(torch.ones(1, 4, 8))
    assert len(session.trail) > 2000
    assert size(session.trail) / len(session.trail) <= 200


def test_nothing_is_left_behind():
    counts = []
    for _ in range(3):  # torch itself keeps some tensors of each compilation
        torch.compile(changes, backend="eager")(torch.ones(3))
        counts.append(alive())
    with Session([*LOOK, "b changes if x.shape[0]", "c"], internals=True) as session:
        torch.compile(changes, backend="eager")(torch.ones(3))
    assert alive() - counts[-1] <= counts[-1] - counts[-2]
    assert len(session.trail) > 100


def test_everything_is_restored():
    original = vars(symbolic_convert.InstructionTranslatorBase)["step"]
    with Session(["c"], internals=False):
        assert vars(symbolic_convert.InstructionTranslatorBase)["step"] is not original
    assert vars(symbolic_convert.InstructionTranslatorBase)["step"] is original
    assert hooks.installed() == ()
