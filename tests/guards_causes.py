"""What makes torch compile again: one program each, and what a reason has to say of it.

A cause is a function to compile, its first and second arguments, what changes in between, and the failed guard. The line that
has to be named ends with `# HERE`; where global state or the backend changed it is the line of the call.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import types
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

PARAMETER = "torch.nn.parameter.Parameter"
RELU, TANH = "torch.nn.modules.activation.ReLU", "torch.nn.modules.activation.Tanh"
KEYS = ", BackendSelect, ADInplaceOrView, Autograd"
GLOBAL_INT = 1
GLOBAL_TEXT = "relu"
GLOBAL_TENSOR = torch.ones(3)
DYNAMIC = "with dynamic=True"
STEADY = "as in the second call from the first call on"


def global_function(x):
    return x + 1


@dataclass
class Cause:
    """One program, what changes, and the reason to expect."""

    function: Callable[..., Any]
    first: tuple[Any, ...]
    second: tuple[Any, ...]
    kind: str
    source: str
    expected: str | None
    got: str | None
    change: Callable[[], Any] = contextlib.nullcontext  # a context around the second call
    options: dict[str, Any] = field(default_factory=lambda: {"dynamic": False})
    rule: str | None = None
    advised: Callable[[], Cause] | str | None = None  # the same program after the advice was followed: DYNAMIC, STEADY or one
    asks: Callable[..., Any] | None = None  # whose line asked for the guard, where it is not the function's


CAUSES: dict[str, Callable[[], Cause]] = {}


def cause(make):
    CAUSES[make.__name__] = make
    return make


def ones(*size, **options):
    return torch.ones(*size, **options)


def plus_one(x):
    return x + 1  # HERE


def times(x, n):
    return x * n  # HERE


@contextlib.contextmanager
def attribute(owner, name, value):
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextlib.contextmanager
def removed(owner, name):
    before = getattr(owner, name)
    delattr(owner, name)
    try:
        yield
    finally:
        setattr(owner, name, before)


@cause
def size_of_a_tensor():
    return Cause(
        plus_one,
        (ones(3),),
        (ones(4),),
        "size",
        "x.size()[0]",
        "3",
        "4",
        rule="DX102",
        advised=lambda: Cause(plus_one, (marked(3),), (marked(4),), "", "", None, None, options={}),
    )


def marked(*size):
    x = ones(*size)
    torch._dynamo.mark_dynamic(x, len(size) - 1)
    return x


@cause
def size_of_an_inner_dimension():
    return Cause(
        plus_one,
        (ones(2, 3),),
        (ones(2, 5),),
        "size",
        "x.size()[1]",
        "3",
        "5",
        rule="DX102",
        advised=lambda: Cause(plus_one, (marked(2, 3),), (marked(2, 5),), "", "", None, None, options={}),
    )


@cause
def stride_of_a_tensor():
    return Cause(plus_one, (ones(3, 3),), (ones(3, 3).t(),), "stride", "x.stride()[0]", "3", "1")


@cause
def rank_of_a_tensor():
    return Cause(plus_one, (ones(3),), (ones(3, 3),), "rank", "x", "1", "2")


@cause
def dtype_of_a_tensor():
    return Cause(
        plus_one,
        (ones(3),),
        (ones(3).double(),),
        "dtype",
        "x",
        "Float",
        "Double",
        rule="DX105",
        advised=lambda: Cause(plus_one, (ones(3),), (ones(3).double().float(),), "", "", None, None),
    )


@cause
def requires_grad_of_a_tensor():
    return Cause(
        plus_one,
        (ones(3),),
        (ones(3, requires_grad=True),),
        "requires_grad",
        "x",
        "False",
        "True",
        rule="DX106",
        advised=lambda: Cause(plus_one, (ones(3),), (ones(3, requires_grad=True).detach(),), "", "", None, None),
    )


@cause
def class_of_a_tensor():
    return Cause(
        plus_one,
        (ones(3),),
        (torch.nn.Parameter(ones(3), requires_grad=False),),
        "type",
        "x",
        "<class 'torch.Tensor'>",
        f"<class '{PARAMETER}'>",
    )


@cause
def device_of_a_tensor():
    return Cause(
        plus_one,
        (ones(3),),
        (ones(3, device="meta"),),
        "tensor",
        "x",
        f"DispatchKeySet(CPU{KEYS}CPU)",
        f"DispatchKeySet(Meta{KEYS}Meta)",
    )


@cause
def an_int_argument():
    return Cause(
        times,
        (ones(3), 2),
        (ones(3), 3),
        "value",
        "n",
        "2",
        "3",
        rule="DX114",
        advised=lambda: Cause(times, (ones(3), torch.tensor(2)), (ones(3), torch.tensor(3)), "", "", None, None),
    )


@cause
def a_float_argument():
    return Cause(times, (ones(3), 2.5), (ones(3), 3.5), "value", "n", "2.5", "3.5", rule="DX114", advised=DYNAMIC)


@cause
def a_bool_argument():
    return Cause(times, (ones(3), True), (ones(3), False), "value", "n", "True", "False", rule="DX114", advised=STEADY)


@cause
def a_text_argument():
    def by_mode(x, mode):
        return x.relu() if mode == "relu" else x.tanh()  # HERE

    return Cause(
        by_mode, (ones(3), "relu"), (ones(3), "tanh"), "value", "mode", "'relu'", "'tanh'", rule="DX114", advised=STEADY
    )


@cause
def an_argument_that_is_none():
    def masked(x, mask):
        return x + 1 if mask is None else x * mask  # HERE

    return Cause(masked, (ones(3), None), (ones(3), ones(3)), "none", "mask", "None", "a Tensor", rule="DX114", advised=STEADY)


@cause
def the_type_of_an_argument():
    def scaled(x, n):
        return x * len(n)  # HERE

    first, second = (ones(3), [1, 2]), (ones(3), (1, 2))
    return Cause(scaled, first, second, "type", "n", "<class 'list'>", "<class 'tuple'>")


@cause
def an_enum_argument():
    class Mode(enum.Enum):
        UP = 1
        DOWN = 2

    def by_mode(x, mode):
        return x + 1 if mode is Mode.UP else x - 1  # HERE

    return Cause(
        by_mode,
        (ones(3), Mode.UP),
        (ones(3), Mode.DOWN),
        "object",
        "mode",
        "an_enum_argument.<locals>.Mode.UP",
        "an_enum_argument.<locals>.Mode.DOWN",
        rule="DX110",
        advised=STEADY,
    )


@cause
def the_length_of_a_list():
    def summed(x, each):
        return x + sum(each)  # HERE

    return Cause(
        summed,
        (ones(3), [1, 2]),
        (ones(3), [1, 2, 3]),
        "length",
        "each",
        "2",
        "3",
        rule="DX104",
        advised=lambda: Cause(summed, (ones(3), [1, 2, 0]), (ones(3), [1, 2, 0]), "", "", None, None),
    )


@cause
def an_item_of_a_list():
    def first_of(x, each):
        return x + each[0]  # HERE

    return Cause(first_of, (ones(3), [1, 2]), (ones(3), [5, 2]), "value", "each[0]", "1", "5", rule="DX114", advised=DYNAMIC)


@cause
def an_empty_list():
    def counted(x, each):
        return x + len(each)  # HERE

    return Cause(counted, (ones(3), []), (ones(3), [1]), "length", "each", "0", "1", rule="DX104", advised=STEADY)


@cause
def an_item_of_a_tuple():
    def second_of(x, pair):
        return x + pair[1]  # HERE

    return Cause(second_of, (ones(3), (1, 2)), (ones(3), (1, 3)), "value", "pair[1]", "2", "3", rule="DX114", advised=DYNAMIC)


@cause
def a_field_of_a_namedtuple():
    Point = namedtuple("Point", "x y")

    def moved(x, point):
        return x + point.y  # HERE

    return Cause(
        moved, (ones(3), Point(1, 2)), (ones(3), Point(1, 3)), "value", "point.y", "2", "3", rule="DX114", advised=DYNAMIC
    )


@cause
def a_value_of_a_dict():
    def looked_up(x, table):
        return x + table["a"]  # HERE

    return Cause(
        looked_up, (ones(3), {"a": 1}), (ones(3), {"a": 2}), "value", "table['a']", "1", "2", rule="DX114", advised=DYNAMIC
    )


@cause
def the_keys_of_a_dict():
    def counted(x, table):
        return x + sum(table.values())  # HERE

    return Cause(
        counted, (ones(3), {"a": 1}), (ones(3), {"a": 1, "b": 2}), "length", "table", "1", "2", rule="DX104", advised=STEADY
    )


@cause
def another_key_of_a_dict():
    def counted(x, table):
        return x + (1 if next(iter(table)) == "a" else 2)  # HERE

    return Cause(counted, (ones(3), {"a": 1}), (ones(3), {"b": 1}), "keys", "table", "'a'", "'b'", rule="DX104", advised=STEADY)


@cause
def a_key_that_is_not_there():
    def looked_up(x, table):
        return x + 1 if "a" in table else x + 2  # HERE

    return Cause(
        looked_up,
        (ones(3), {"b": 1}),
        (ones(3), {"b": 1, "a": 1}),
        "keys",
        "table",
        "no 'a'",
        "'a'",
        rule="DX104",
        advised=STEADY,
    )


@cause
def a_member_of_a_set():
    def looked_up(x, names):
        return x + 1 if "a" in names else x + 2  # HERE

    return Cause(looked_up, (ones(3), {"a"}), (ones(3), {"b"}), "keys", "names", "'a'", "no 'a'", rule="DX104", advised=STEADY)


@cause
def the_type_of_a_dict():
    def looked_up(x, table):
        return x + table["a"]  # HERE

    first, second = (ones(3), {"a": 1}), (ones(3), defaultdict(int, a=1))
    return Cause(looked_up, first, second, "type", "table", "<class 'dict'>", "<class 'collections.defaultdict'>")


@cause
def an_ordered_dict_in_another_order():
    def counted(x, table):
        return x + next(iter(table.values()))  # HERE

    first, second = OrderedDict(a=1, b=2), OrderedDict(b=2, a=1)
    return Cause(counted, (ones(3), first), (ones(3), second), "keys", "table", "'a'", "'b', 'a'", rule="DX104", advised=STEADY)


@cause
def an_attribute_of_an_object():
    thing = types.SimpleNamespace(scale=1)

    def scaled(x):
        return x * thing.scale  # HERE

    return Cause(
        scaled,
        (ones(3),),
        (ones(3),),
        "value",
        "thing.scale",
        "1",
        "2",
        lambda: attribute(thing, "scale", 2),
        rule="DX114",
        advised=DYNAMIC,
    )


@cause
def an_attribute_that_goes_away():
    class Thing:
        pass

    thing = Thing()
    thing.scale = 2

    def scaled(x):
        return x * getattr(thing, "scale", 1)  # HERE

    return Cause(
        scaled, (ones(3),), (ones(3),), "attribute", "thing.scale", "present", "absent", lambda: removed(thing, "scale")
    )


@cause
def an_int_of_a_module():
    class Steps(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.step = 1

        def forward(self, x):
            return x * self.step  # HERE

    module = Steps()
    return Cause(
        module,
        (ones(3),),
        (ones(3),),
        "value",
        "self.step",
        "1",
        "2",
        lambda: attribute(module, "step", 2),
        rule="DX101",
        advised=_with_a_buffer,
    )


def _with_a_buffer():
    class Steps(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("step", torch.tensor(1))

        def forward(self, x):
            return x * self.step

    module = Steps()
    return Cause(module, (ones(3),), (ones(3),), "", "", None, None, lambda: contextlib.nullcontext(module.step.add_(1)))


@cause
def training_and_evaluation():
    module = torch.nn.Sequential(torch.nn.Dropout(0.0))

    class Dropped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = module

        def forward(self, x):
            return x * 2 if self.training else x  # HERE

    whole = Dropped()
    return Cause(
        whole,
        (ones(3),),
        (ones(3),),
        "value",
        "self.training",
        "True",
        "False",
        lambda: attribute(whole, "training", False),
        rule="DX107",
        advised=STEADY,
    )


@cause
def a_replaced_submodule():
    class Holder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.act = torch.nn.ReLU()

        def forward(self, x):
            return self.act(x)  # HERE

    module = Holder()
    return Cause(
        module,
        (ones(3),),
        (ones(3),),
        "type",
        "self._modules['act']",
        f"<class '{RELU}'>",
        f"<class '{TANH}'>",
        lambda: attribute(module, "act", torch.nn.Tanh()),
    )


@cause
def a_replaced_parameter():
    module = torch.nn.Linear(3, 3)

    class Holder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = module

        def forward(self, x):
            return x @ self.linear.weight  # HERE

    other = torch.nn.Parameter(torch.ones(3, 5))
    return Cause(
        Holder(),
        (ones(3),),
        (ones(3),),
        "size",
        "self._modules['linear']._parameters['weight'].size()[1]",
        "3",
        "5",
        lambda: attribute(module, "weight", other),
        rule="DX102",
        advised=STEADY,
    )


@cause
def a_global_int():
    def scaled(x):
        return x * GLOBAL_INT  # HERE

    return Cause(
        scaled,
        (ones(3),),
        (ones(3),),
        "value",
        "G['GLOBAL_INT']",
        "1",
        "2",
        lambda: _global("GLOBAL_INT", 2),
        rule="DX103",
        advised=lambda: Cause(times, (ones(3), torch.tensor(1)), (ones(3), torch.tensor(2)), "", "", None, None),
    )


@contextlib.contextmanager
def _global(name, value):
    before = globals()[name]
    globals()[name] = value
    try:
        yield
    finally:
        globals()[name] = before


@cause
def a_global_text():
    def by_mode(x):
        return x.relu() if GLOBAL_TEXT == "relu" else x  # HERE

    return Cause(
        by_mode,
        (ones(3),),
        (ones(3),),
        "value",
        "G['GLOBAL_TEXT']",
        "'relu'",
        "'tanh'",
        lambda: _global("GLOBAL_TEXT", "tanh"),
        rule="DX103",
        advised=STEADY,
    )


@cause
def a_global_function():
    def calls(x):
        return global_function(x)  # HERE

    return Cause(
        calls,
        (ones(3),),
        (ones(3),),
        "function",
        "G['global_function']",
        "global_function",
        "a_global_function.<locals>.<lambda>.<locals>.<lambda>",
        lambda: _global("global_function", lambda x: x - 1),
        rule="DX111",
        advised=STEADY,
    )


@cause
def a_global_tensor():
    def adds(x):
        return x + GLOBAL_TENSOR  # HERE

    return Cause(
        adds,
        (ones(3),),
        (ones(3),),
        "dtype",
        "G['GLOBAL_TENSOR']",
        "Float",
        "Double",
        lambda: _global("GLOBAL_TENSOR", ones(3).double()),
        rule="DX105",
        advised=STEADY,
    )


@cause
def a_closed_over_number():
    n = 1

    def scaled(x):
        return x * n  # HERE

    @contextlib.contextmanager
    def changed():
        nonlocal n
        n = 2
        yield

    return Cause(scaled, (ones(3),), (ones(3),), "value", "n", "1", "2", changed, rule="DX114", advised=DYNAMIC)


@cause
def a_default():
    def scaled(x, by=(1, 2)):
        return x * by[0]  # HERE

    return Cause(scaled, (ones(3),), (ones(3), (3, 2)), "value", "by[0]", "1", "3", rule="DX114", advised=DYNAMIC)


@cause
def a_function_argument():
    def applied(x, fn):
        return fn(x)  # HERE

    return Cause(
        applied,
        (ones(3), lambda x: x + 1),
        (ones(3), global_function),
        "function",
        "fn",
        "a_function_argument.<locals>.<lambda>",
        "global_function",
        rule="DX111",
        advised=lambda: Cause(applied, (ones(3), plus_one), (ones(3), plus_one), "", "", None, None),
    )


@cause
def a_partial_argument():
    def applied(x, fn):
        return fn(x)  # HERE

    first, second = functools.partial(times, n=2), functools.partial(times, n=3)
    return Cause(
        applied,
        (ones(3), first),
        (ones(3), second),
        "value",
        "fn.keywords['n']",
        "2",
        "3",
        rule="DX114",
        advised=DYNAMIC,
        asks=times,
    )


@cause
def a_class_argument():
    def built(x, cls):
        return cls()(x)  # HERE

    first, second = (ones(3), torch.nn.ReLU), (ones(3), torch.nn.Tanh)
    return Cause(built, first, second, "object", "cls", "ReLU", "Tanh", rule="DX110", advised=STEADY)


@cause
def the_same_tensor_twice():
    def added(x, y):
        return x + y  # HERE

    x = ones(3)
    return Cause(added, (x, x), (x, ones(3)), "alias", "x", "is y", "is not y")


@cause
def a_branch_on_a_size():
    def branched(x):
        return x + 1 if x.size(0) > 5 else x - 1  # HERE

    return Cause(
        branched,
        (ones(8),),
        (ones(3),),
        "shape",
        "x.size()[0]",
        "6 <= x.size()[0]",
        "3",
        options={"dynamic": True},
        rule="DX102",
        advised=STEADY,
    )


@cause
def grad_mode():
    return Cause(
        plus_one,
        (ones(3),),
        (ones(3),),
        "global_state",
        "grad_mode",
        "grad_mode True",
        "grad_mode False",
        torch.no_grad,
        rule="DX108",
        advised=STEADY,
    )


@cause
def autocast():
    return Cause(
        plus_one,
        (ones(3),),
        (ones(3),),
        "global_state",
        "autocast(cpu)_enabled",
        "autocast(cpu)_enabled False",
        "autocast(cpu)_enabled True",
        lambda: torch.autocast("cpu", torch.bfloat16),
        rule="DX109",
        advised=STEADY,
    )


@cause
def deterministic_algorithms():
    @contextlib.contextmanager
    def switched_on():
        torch.use_deterministic_algorithms(True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(False)

    return Cause(
        plus_one,
        (ones(3),),
        (ones(3),),
        "global_state",
        "deterministic_algorithms",
        "deterministic_algorithms False",
        "deterministic_algorithms True",
        switched_on,
        rule="DX109",
        advised=STEADY,
    )


@cause
def default_dtype():
    @contextlib.contextmanager
    def double():
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(torch.float32)

    return Cause(
        plus_one,
        (ones(3),),
        (ones(3),),
        "global_state",
        "default_dtype",
        "default_dtype float32",
        "default_dtype float64",
        double,
        rule="DX109",
        advised=STEADY,
    )


@cause
def default_device():
    return Cause(
        plus_one,
        (ones(3),),
        (ones(3),),
        "global_state",
        "torch_function_mode_stack",
        "torch_function_mode_stack empty",
        "torch_function_mode_stack DeviceContext(meta)",
        lambda: torch.device("meta"),
        rule="DX109",
        advised=STEADY,
    )


@cause
def inference_mode():
    @contextlib.contextmanager
    def inference():
        with torch.inference_mode():
            yield

    return Cause(
        plus_one,
        (ones(3),),
        (ones(3),),
        "global_state",
        "grad_mode",
        "grad_mode True",
        "grad_mode False",
        inference,
        rule="DX108",
        advised=STEADY,
    )


@cause
def an_optimizer_setting():
    parameter = torch.nn.Parameter(ones(3))
    parameter.grad = ones(3)
    optimizer = torch.optim.SGD([parameter], lr=0.1)

    def step(x):
        optimizer.step()  # HERE
        return x + 1

    return Cause(
        step,
        (ones(3),),
        (ones(3),),
        "value",
        "self.param_groups[0]['lr']",
        "0.1",
        "0.2",
        lambda: contextlib.nullcontext(optimizer.param_groups[0].update(lr=0.2)),
        rule="DX113",
        advised=_with_a_tensor_as_lr,
    )


def _with_a_tensor_as_lr():
    parameter = torch.nn.Parameter(ones(3))
    parameter.grad = ones(3)
    optimizer = torch.optim.SGD([parameter], lr=torch.tensor(0.1))

    def step(x):
        optimizer.step()
        return x + 1

    lr = optimizer.param_groups[0]["lr"]
    return Cause(step, (ones(3),), (ones(3),), "", "", None, None, lambda: contextlib.nullcontext(lr.fill_(0.2)))
