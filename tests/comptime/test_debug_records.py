"""The debugger records the exact state of the tracer in little memory, and leaves the compilation unchanged."""

from __future__ import annotations

import contextlib
import sys
from array import array
from dataclasses import dataclass
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


def mutations(x):
    """Mutate lists, dicts, sets, tensors and closed-over variables while their names stay."""
    items, table, numbers = [x], {"k": 1}, set()
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
    numbers.add(1)
    y += more(y)
    y.unsqueeze_(0)
    del table["k"]
    for i, (key, value) in enumerate(table.items()):
        count += i + len(value) + len(key)
    items += [y]
    items.pop()
    return sum(item.sum() for item in items) + count


def keyword_arguments(x, *args, **kwargs):
    def inner(*, scale=2, **rest):
        rest["more"] = [scale]
        return x * scale + len(rest)

    try:
        return inner(**kwargs) + args[0]
    except IndexError:
        return inner()


def generators(x):
    yielded = []

    def products():
        for i in range(3):
            yielded.append(i)
            yield x * i

    total = sum(products())
    first, *rest = yielded
    return total + first + len(rest)


def method_of_a_dict(x, table=None):
    """Leave `table.get` on the value stack: reading its type would add a guard on every value of the table."""
    return x + table.get("a")


def mutation_in_arguments(x):
    """Mutate the list and the tensor while `items.append` and `y.add` are on the value stack."""
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


def lazy_members(x, table=None):
    """Read the members of an input container one after the other, so that they are realized one after the other."""
    first = {"all": table, "a": table["a"]}
    second = [table["b"], table["a"], table["c"]]
    is_number = isinstance(second[2], int)  # realizes the variable of the range, whose text differs from then on
    alias = second
    total = first["a"] + second[0] + (1 if is_number else len(alias))
    size = x.size()
    return x.reshape(size[0], 1) * total + len(first) + size.numel()


WEIGHT = torch.ones(3, requires_grad=True)


def in_place_operations(x):
    """Mutate tensors in every way an operation can, while a list, a tuple and a dict hold them."""
    tensors = [torch.zeros(3), torch.zeros(3), torch.zeros(3), torch.zeros(3), torch.zeros(3), torch.zeros(1, 3)]
    nested, table = (tensors[0], [tensors[1]]), {"a": tensors[2], "b": (tensors[5],)}
    tensors[0][0] = WEIGHT[0]
    tensors[1].copy_(WEIGHT)
    table["a"] += WEIGHT
    inplace = True  # a positional argument, which the recorder must recognize too
    torch.nn.functional.relu(tensors[3].add_(WEIGHT), inplace)
    torch.nn.functional.leaky_relu(tensors[4].mul_(WEIGHT), 0.1, inplace=True)
    out = torch.empty(0)
    total = torch.cos(x) + torch.add(x, 1, out=out) + torch.where(x > 0, x, 1.0)
    table["b"][0].squeeze_(0)
    tensors[5].t_().unsqueeze_(0)
    return total + sum(tensor.sum() for tensor in tensors) + nested[0].sum() + len(table)


def symbolic_numbers(x, table=None):
    """Add facts about symbolic numbers, in variables and in a list: torch simplifies their expressions."""
    number = x.sum().int().item()
    items = [number, x.size(0), table]
    doubled = x.size(0) * 2
    torch._check(number == 3)
    result = number
    if items[2]["b"] > 1:
        result = number + 0
    if x.size(0) == 3:
        result = result + 1
    return x * result + doubled + len(items)


@dataclass
class Pair:
    first: object
    second: object = 0


def dataclasses(x):
    """Assign fields of dataclasses that locals, the value stack and a list hold."""
    made = Pair(1)
    made.second = x
    nested = [made, Pair([1], made)]

    def change(pair):
        pair.first.append(2)
        pair.second.first = 5
        return x.requires_grad

    nested.append(change(nested[1]))
    y = made.second + made.first
    made.second = y
    nested[1].second = y.unsqueeze_(0)
    return y + len(nested)


class Counter:
    """Mutate a list in each kind of method that Python calls by itself."""

    def __init__(self, log):
        self.log = log
        self.log.append("init")

    @property
    def next(self):
        self.log.append("next")
        return len(self.log)

    def __getattr__(self, name):
        self.log.append(name)
        if name == "missing":
            raise AttributeError(name)
        return name

    def __add__(self, other):
        self.log.append(other)
        return self

    def __contains__(self, item):
        self.log.append(item)
        return item == 1

    def __eq__(self, other):
        self.log.pop()
        return False

    __hash__ = None

    def __bool__(self):
        self.log.append(True)
        return True

    def add(self, value):
        self.log.append(value)
        return value

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, *_):
        self.log.clear()


def methods_that_python_calls(x):
    """Keep a list in a local while the code of a class, which Python calls for it, mutates the list."""
    log = []
    counter = Counter(log)
    total = counter.next + len(counter.other)
    counter = counter + 1
    found = 2 in counter, counter == 1, hasattr(counter, "missing"), getattr(counter, "missing", None)
    if counter:
        total += len(log)
    values = [counter.add(1), *map(counter.add, (2, 3)), *sorted([3, 1, 2], key=counter.add)]
    with counter as entered:
        entered.add(4)
    for value in filter(counter.add, values):
        total += value
    table = {counter.add(1): counter.add(2), "k": counter.add(3)}
    return x + total + len(log) + len(found) + len(table) + max(values)


def raises_after_a_mutation(values, table):
    values.append(1)
    table["raised"] = len(values)
    return table["missing"]


def exceptions_after_mutations(x):
    """Catch exceptions of calls that mutated values of the caller first."""
    values, table = [], {}
    for _ in range(2):
        try:
            raises_after_a_mutation(values, table)
        except KeyError as error:
            values.append(str(error))
    held = [values]
    try:
        held.append(raises_after_a_mutation(held[0], table))
    except KeyError:
        held = [*held, *(len(each) for each in table if isinstance(each, str))]
    finally:
        values += held[1:]
    return x + len(values) + len(table)


def containers_under_construction(x, table=None):
    """Build containers out of parts that mutate other containers, and hold them in several places."""
    held = [x]

    def hold(value):
        held.append(value)
        return held

    lists = [
        hold(1),
        [*hold(2), *[hold(n) for n in range(2)]],
        {n: hold(n) for n in range(2)},
        {len(hold(n)) for n in range(2)},
    ]
    alias, (first, *rest) = lists, held
    lists[0] += [alias[1]]
    alias[1].append(rest)
    joined = (*held, *lists[1])
    merged = {**lists[2], 5: {"a": held, **lists[2]}}
    text = "".join(str(n) for n in rest[:1])
    return first + len(joined) + len(merged) + len(alias) + len(text)


def iterators(x):
    """Advance iterators that are on the stack, in locals and in a list while their sources change."""
    values = [1, 2, 3]
    one, many = iter(values), [iter((1, 2)), iter(range(3))]
    total = next(one)
    for value in one:
        total += value
        if len(values) < 5:
            values.append(total)
    for index, (a, b) in enumerate(zip(*many, strict=False)):
        total += a * b + index
        values[index] = (a, values[:1])
    chained = reversed(values)
    for value in chained:
        total += len(value) if isinstance(value, tuple) else value
    return x + total + next(many[1], 7)


HERE = (
    containers_under_construction,
    dataclasses,
    exceptions_after_mutations,
    iterators,
    methods_that_python_calls,
    symbolic_numbers,
    in_place_operations,
    mutations,
    keyword_arguments,
    generators,
    method_of_a_dict,
    mutation_in_arguments,
    lazy_members,
)
PROGRAMS = {
    program.__name__: program
    for program in (*HERE, *(f for f in vars(corpus).values() if callable(f) and hasattr(f, "__code__")))
}


def arguments(name):
    return (
        (torch.ones(3), {"a": 1, "b": 2, "c": range(3)})
        if name in ("symbolic_numbers", "method_of_a_dict", "lazy_members", "containers_under_construction")
        else (torch.ones(3),)
    )


class Oracle:
    """Renders the whole state of the tracer before each instruction, without the shortcuts of the recorder."""

    def __enter__(self):
        self.states = []
        self._handle = hooks.wrap(hook_point("step"), self._around)
        return self

    def __exit__(self, *_):
        self._handle.remove()

    def _around(self, original):
        def step(tx):
            if tx.instruction_pointer is not None:
                variables = {name: show(tx, variable) for name, variable in translator.local_variables(tx).items()}
                stack = tuple(show(tx, value) for value in tx.stack)
                self.states.append((stack, variables, len(tx.output.guards.inner)))
            return original(tx)

        return step


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_debugger_recording_equals_the_tracer_state_rendered_at_each_instruction(name, dynamic):
    torch._dynamo.reset()
    scalar_outputs = torch._dynamo.config.patch(capture_scalar_outputs=True)
    with scalar_outputs, Session(["c"] * 20, internals=True) as session, Oracle() as oracle:
        torch.compile(PROGRAMS[name], backend="eager", dynamic=dynamic or None)(*arguments(name))
    assert len(session.trail) == len(oracle.states) > 0
    for row, (stack, variables, guards) in enumerate(oracle.states):
        recorded = state(session.trail, row, internals=True)
        assert (recorded.frames[0].stack, dict(recorded.frames[0].locals), recorded.guards) == (stack, variables, guards), row


COMMANDS = ["s", "locals", "stack", "w", "p x", "p x.shape", "back 2", "locals", "forward 2", "graph", "guards", "si"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_debugger_changes_no_graph_bytecode_or_guard(name):
    plain = fingerprint(PROGRAMS[name], arguments(name), contextlib.nullcontext())
    assert plain[2]
    assert fingerprint(PROGRAMS[name], arguments(name), Session(COMMANDS * 40, internals=False)) == plain


@pytest.mark.parametrize("count", [1, 2, 7, 30, 1000])
def test_debugger_back_and_forward_commands_do_not_change_the_recording(count, capsys):
    torch._dynamo.reset()
    with Session(["c", f"back {count}", f"forward {count}", "q"], internals=False) as session:
        torch.compile(mutations, backend="eager")(torch.ones(3))
        session.end("over")
    trail = session.trail
    rows = history(trail)
    states = [state(trail, row) for row in rows]
    index = len(rows) - 1 - count
    assert [state(trail, row) for row in rows] == states
    if index >= 0:
        assert states[index] != states[-1]
        assert f"{count} instruction{'s' if count > 1 else ''} back" in capsys.readouterr().out


def size(root):
    """Return the bytes of all reachable objects, without code objects, which exist in any case."""
    visited, total, todo = set(), 0, [root]
    while todo:
        value = todo.pop()
        if id(value) in visited or isinstance(value, (CodeType, type)):
            continue
        visited.add(id(value))
        total += sys.getsizeof(value)
        if isinstance(value, dict):
            todo += [*value, *value.values()]
        elif isinstance(value, (list, tuple, set)):
            todo += value
        elif not isinstance(value, (str, int, array)):
            names = [name for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ())]
            todo += [getattr(value, name) for name in names]
            todo += vars(value).values() if hasattr(value, "__dict__") else []
    return total


@pytest.mark.slow
def test_debugger_recording_takes_at_most_200_bytes_per_instruction():
    layer = torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    torch._dynamo.reset()
    with Session(["c"], internals=False) as session:
        torch.compile(model, backend="eager")(torch.ones(1, 4, 8))
    assert len(session.trail) > 2000
    assert size(session.trail) / len(session.trail) <= 200


@pytest.mark.slow
def test_debugger_session_keeps_no_tensor_alive():
    counts = []
    for _ in range(3):  # torch itself keeps some tensors of each compilation
        torch.compile(mutations, backend="eager")(torch.ones(3))
        counts.append(alive())
    with Session([*COMMANDS, "b mutations if x.shape[0]", "c"], internals=True) as session:
        torch.compile(mutations, backend="eager")(torch.ones(3))
    assert alive() - counts[-1] <= counts[-1] - counts[-2]
    assert len(session.trail) > 100


@pytest.mark.usefixtures("torch_names")
def test_leaving_the_debugger_restores_the_step_method_of_the_instruction_translator():
    original = vars(symbolic_convert.InstructionTranslatorBase)["step"]
    with Session(["c"], internals=False):
        assert vars(symbolic_convert.InstructionTranslatorBase)["step"] is not original
    assert vars(symbolic_convert.InstructionTranslatorBase)["step"] is original
    assert hooks.installed() == ()
