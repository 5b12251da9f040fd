"""What `check` compares, what it leaves behind, and what it says when it cannot tell."""

import contextlib
import inspect
import io
import json
import random
import threading
from collections import OrderedDict

import pytest
import torch
from rich.console import Console
from support.wrong_gradients import Doubled
from torch import nn

import dynx
from dynx import guards
from dynx.effects._check.facts import Description
from dynx.effects._world.world import Call, World
from dynx.errors import CompiledDiffers, UsageError

total = 0
kept: list[int] = []


class Holder:
    steps = 0


def x(*shape):
    return torch.randn(*(shape or (4, 8)), generator=torch.Generator().manual_seed(0))


def edited(change):
    """Return a backend that changes the results of a graph."""

    def backend(gm, _):
        return lambda *args: tuple(change(result) for result in gm(*args))

    return backend


def only_diff(fn, *args, **options):
    (diff,) = dynx.check(fn, *args, calls=1, **options).diffs
    return diff


@pytest.mark.slow
def test_a_backend_that_computes_something_else():
    diff = only_diff(lambda value: value.sin(), x(), backend=edited(lambda result: result + 1e-3))
    assert (diff.path, diff.kind) == ("result", "tensor")
    assert "Greatest absolute difference: 0.001" in diff.compiled


def test_one_wrong_element_in_many():
    def spoil(result):
        spoiled = result.clone()
        spoiled[7, 3] += 1e-3
        return spoiled

    assert only_diff(lambda value: value @ value.T, x(64, 64), backend=edited(spoil)).kind == "tensor"


@pytest.mark.slow
def test_rounding_is_no_difference():
    """What a compiler computes in another order is as close to the result in double precision as eager code is."""

    def in_another_order(gm, _):
        return lambda value, *rest: (value.double().sum(0).float(),)

    terms = x(100_000, 2) * 1e3
    terms = torch.cat([terms, -terms.flip(0)]) + 0.01
    assert not torch.allclose(terms.double().sum(0).float(), terms.sum(0), rtol=1.3e-6, atol=1e-5)
    dynx.check(lambda value: value.sum(0), terms, backend=in_another_order).assert_ok()
    assert dynx.check(lambda value: value.sum(0), terms, backend=in_another_order, rtol=0, atol=0).diffs


def test_wrong_gradients():
    weight = nn.Parameter(x(8, 8))
    diff = only_diff(lambda value: value @ weight, x(), backend=edited(Doubled.apply))
    assert (diff.path, diff.kind) == ("gradient of closure.weight", "gradient")


@pytest.mark.slow
def test_lost_random_numbers():
    def backend(gm, _):
        return lambda *args: [torch.zeros(3)]

    found = {diff.kind for diff in dynx.check(lambda value: value * 0 + torch.rand(3), x(3), backend=backend).diffs}
    assert found == {"tensor", "random"}


def test_an_exception_of_the_backend():
    def backend(gm, _):
        raise ZeroDivisionError("no")

    diff = only_diff(lambda value: value + 1, x(), backend=backend)
    assert (diff.path, diff.kind, diff.eager) == ("exception", "exception", "none")
    assert diff.compiled.startswith("BackendCompilerFailed")


def test_results_that_share_memory():
    def backend(gm, _):
        return lambda value: (value.clone().view(-1),)

    diff = only_diff(lambda value: value.view(-1), x(), backend=backend)
    assert (diff.kind, diff.eager, diff.compiled) == ("sharing", "shares memory with args[0]", "absent")


@pytest.mark.slow
def test_output():
    def backend(gm, _):
        print("compiling")
        return gm.forward

    diff = only_diff(lambda value: value + 1, x(), backend=backend)
    assert (diff.path, diff.kind, diff.compiled) == ("stdout", "output", "compiling")


def test_nothing_was_compiled():
    report = dynx.check(lambda number: number + 1, 3)
    assert report.is_vacuous
    assert not report.ok
    assert not report.diffs
    with pytest.raises(CompiledDiffers, match="VACUOUS"):
        report.assert_ok()


@pytest.mark.slow
def test_graph_breaks_are_listed():
    def broken(value):
        doubled = value * 2
        torch._dynamo.graph_break()
        return doubled + 1

    report = dynx.check(broken, x())
    assert report.ok
    assert report.compiles == 2
    assert report.graph_breaks[0].location.line == broken.__code__.co_firstlineno + 2


@pytest.mark.slow
def test_further_inputs_find_what_the_first_ones_do_not():
    """A branch on the value of a tensor's data that a backend has fixed."""

    def backend(gm, inputs):
        fixed = inputs[0].abs().max()
        return lambda value: (value / fixed,)

    def normalized(value):
        return value / value.abs().max()

    assert dynx.check(normalized, x(), backend=backend).ok
    (diff,) = dynx.check(normalized, x(), inputs=[x() * 2], calls=1, backend=backend).diffs
    assert (diff.call, diff.path) == (1, "result")


def test_state_that_no_name_leads_to():
    hidden = {"count": 0}
    registry = type("Registry", (), {"hidden": hidden})
    find = {"registry": registry}.get  # a method of a C object, which is not looked into

    def count(value):
        find("registry").hidden["count"] += 1
        return value + find("registry").hidden["count"]

    dynx.check(count, x(), state={"hidden": hidden}).assert_ok()
    assert hidden == {"count": 0}


def everything(value, module, items):
    global total
    total += 1
    kept.append(total)
    Holder.steps += 1
    items.append(value)
    value.add_(1)
    random.random()
    return module(value) + torch.rand(8)


@pytest.mark.slow
def test_the_program_is_left_as_it_was():
    module, value, items = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)), x(), []
    state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    compiled = torch.compile(everything, backend="eager")
    compiled(x(), module, [])
    entries = [entry.id for entry in guards.inspect(compiled).entries]
    for name, tensor in module.state_dict().items():
        tensor.copy_(state[name])
    torch.manual_seed(1)
    random.seed(1)
    before = (torch.get_rng_state(), random.getstate(), total, list(kept), Holder.steps)
    counters = {name: dict(values) for name, values in torch._dynamo.utils.counters.items()}
    dynx.check(compiled, value, module, items).assert_ok()
    after = (torch.get_rng_state(), random.getstate(), total, list(kept), Holder.steps)
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]
    assert torch.equal(value, x())
    assert items == []
    assert all(torch.equal(tensor, state[name]) for name, tensor in module.state_dict().items())
    assert [entry.id for entry in guards.inspect(compiled).entries] == entries
    assert {name: dict(values) for name, values in torch._dynamo.utils.counters.items()} == counters
    assert not any(parameter.grad is not None for parameter in module.parameters())


@pytest.mark.slow
def test_functions_behind_a_graph_break_keep_no_entries():
    def inner(value):
        return value.cos()

    def outer(value):
        torch._dynamo.graph_break()
        return inner(value)

    dynx.check(outer, x()).assert_ok()
    assert not guards.inspect(torch.compile(inner, backend="eager")).entries


def test_variables_are_restored_after_an_exception_outside_of_the_function():
    def backend(gm, _):
        raise KeyboardInterrupt

    before = total
    with pytest.raises(KeyboardInterrupt):
        dynx.check(everything, x(), nn.Linear(8, 8), [], backend=backend)
    assert (total, kept[:]) == (before, kept)


def test_no_method_of_the_user_is_called_to_copy_or_compare():
    calls = []

    class Watched(list):
        def __getattribute__(self, name):
            calls.append(name)
            return super().__getattribute__(name)

        def __iter__(self):
            calls.append("__iter__")
            return super().__iter__()

        def __len__(self):
            calls.append("__len__")
            return super().__len__()

        def __eq__(self, other):
            calls.append("__eq__")
            return super().__eq__(other)

        def __reduce_ex__(self, protocol):
            calls.append("__reduce_ex__")
            return super().__reduce_ex__(protocol)

    watched = Watched([1])
    world = World(lambda value: value, [Call((watched, x()), {})], {})
    facts = Description({"args": world.calls[0].args}).facts
    assert calls == []
    assert facts["args[0]"].text == "Watched([1])"
    assert world.calls[0].args[0] is not watched


@pytest.mark.slow
def test_from_another_thread():
    reports = []
    thread = threading.Thread(target=lambda: reports.append(dynx.check(lambda value: value.sin(), x())))
    thread.start()
    thread.join()
    assert reports[0].ok


def test_a_lock_is_shared_and_listed():
    lock = threading.Lock()

    def locked(value):
        with contextlib.suppress(ValueError):
            value = value + 1
        return value, lock.locked

    assert "lock" in next(iter(dynx.check(locked, x()).shared))


def make_global(value):
    global made_here
    made_here = value.shape[0]
    return value * made_here


def test_nothing_is_compiled_where_torch_compiles_nothing():
    """Torch skips functions that make a global: a check that compiles them inside of another one proves nothing of them."""
    assert dynx.check(make_global, x()).outcome == "vacuous"
    assert "made_here" not in globals()


@pytest.mark.slow
def test_a_compiled_function_keeps_its_backend():
    used = []

    def backend(gm, _):
        used.append(gm)
        return gm.forward

    report = dynx.check(torch.compile(lambda value: value + 1, backend=backend), x())
    assert report.ok
    assert used
    assert report.backend == "backend"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"calls": 0}, "calls=0"),
        ({"isolate": "vm"}, "isolate='vm'"),
        ({"inputs": []}, "inputs is empty"),
    ],
)
def test_invalid_arguments(options, message):
    with pytest.raises(UsageError, match=message):
        dynx.check(lambda: 1, **options)
    with pytest.raises(UsageError, match="not callable"):
        dynx.check(3)


def test_views_of_a_report():
    report = dynx.check(lambda value: value + 1, x(), backend=edited(lambda result: result * 2))
    screen = io.StringIO()
    Console(file=screen, width=100).print(report)
    assert "does something else compiled" in screen.getvalue()
    assert "result" in report._repr_html_()
    assert json.loads(report.to_json())["diffs"][0]["path"] == "result"


seen = OrderedDict(a=1, b=2)


class Holding(nn.Module):
    def __init__(self):
        super().__init__()
        self.names = OrderedDict(a=1, b=2)

    def forward(self, value, cache, *, other):
        self.names.move_to_end("a")
        torch._dynamo.graph_break()
        cache.move_to_end("a")
        other.move_to_end("a")
        seen.move_to_end("a")
        return value + 1


@pytest.mark.slow
def test_differences_name_the_line_of_the_mutation():
    local = OrderedDict(a=1, b=2)

    def forward(value):
        local.move_to_end("a")
        local.move_to_end("b")
        local.move_to_end("a")
        return value + 1

    def line_of(function, text):
        source, first = inspect.getsourcelines(function)
        return [first + index for index, line in enumerate(source) if text in line]

    (diff,) = dynx.check(forward, x()).diffs
    assert (diff.path, diff.location.line) == ("closure.local", line_of(forward, "move_to_end")[-1])
    report = dynx.check(Holding(), x(), OrderedDict(a=1, b=2), other=OrderedDict(a=1, b=2))
    names = {"self.names": "self.names", "args[1]": "cache", "kwargs.other": "other"}
    assert {diff.path: diff.location.line for diff in report.diffs} == {
        path: line_of(Holding.forward, f"{name}.move_to_end")[0] for path, name in names.items()
    }
    assert f"test_check.py:{report.diffs[0].location.line}" in report.text


def test_an_exception_names_the_line_that_raised():
    def raises(value):
        if value.sum() > 0:
            raise ValueError("positive")
        return value

    def backend(gm, _):
        return lambda *args: [out * 0 for out in gm(*args)]

    (diff,) = dynx.check(raises, torch.ones(2), backend=backend, calls=1).diffs
    assert (diff.path, diff.location.line) == ("exception", raises.__code__.co_firstlineno + 2)


def breaks(value):
    value = value + 1
    torch._dynamo.graph_break()
    return value * 2


@pytest.mark.slow
def test_fullgraph_of_a_compiled_function_is_kept():
    report = dynx.check(torch.compile(breaks, backend="eager", fullgraph=True), x())
    assert [diff.path for diff in report.diffs] == ["exception"]
    assert "graph_break" in report.diffs[0].compiled
    assert dynx.check(torch.compile(breaks, backend="eager"), x()).ok


ALIASES = ("__import_", "__builtins_dict__")


@pytest.mark.slow
def test_names_that_dynamo_gives_to_compiled_code_are_removed():
    """Torch itself leaves them in the module until Python exits, as it does with the two aliases that are left here."""
    before = set(globals())
    report = dynx.check(breaks, x())
    assert report.ok
    assert len(report.graph_breaks) == 1
    assert {name for name in set(globals()) - before if not name.startswith(ALIASES)} == set()
    assert dynx.check(breaks, x()).ok


def test_what_both_sides_raise_is_told():
    report = dynx.check(breaks)
    assert report.is_vacuous
    assert report.raised == "TypeError: breaks() missing 1 required positional argument: 'value'"
    for text in (report.text, report._repr_html_()):
        assert "missing 1 required positional argument" in text


@pytest.mark.slow
@pytest.mark.parametrize("make", [dict, OrderedDict])
def test_views_of_dicts(make):
    """Before 2.15, compiled code stores a view of a new dict, which changes of the old one do not reach."""

    def forward(names, value):
        names["view"] = names.keys()
        return value + 1

    names = make(a=1)
    torch.compile(forward, backend="eager")(names, x())
    names["later"] = 1
    is_stored = "later" in names["view"]
    report = dynx.check(forward, make(a=1), x(), calls=1)
    assert {diff.kind for diff in report.diffs} == (set() if is_stored else {"sharing"})
    names = make(a=1)
    assert dynx.check(lambda view, value: value + len(view), names.values(), x()).ok


def test_an_object_that_contains_itself():
    """Before 2.15, compiled code appends another list."""

    def forward(items, value):
        items.append(items)
        return value + 1

    items = [1]
    torch.compile(forward, backend="eager")(items, x())
    paths = [diff.path for diff in dynx.check(forward, [1], x(), calls=1).diffs]
    assert paths == ([] if items[1] is items else ["args[0][1]"])


def kind(x):
    return type(x)


def of_kind(x):
    return x * 2 if kind(x) is torch.Tensor else x


def test_the_global_that_dynamo_adds_for_the_class_of_a_tensor_is_no_difference():
    """It is `torch` itself, under a name such as `_140181903146128_c0`."""
    names = set(globals())
    for _ in range(2):
        assert dynx.check(of_kind, torch.ones(3)).outcome == "same"
    assert set(globals()) == names
