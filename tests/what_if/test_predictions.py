"""What a what-if says that a fix would do is what happens when the program is changed."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from dynx.session import Watch


class Steps(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.step = nn.Linear(3, 3), 0

    def forward(self, x):
        return self.linear(x) * self.step


class Scan(nn.Module):
    def forward(self, x):
        h = torch.zeros(x.size(0))
        for t in range(x.size(1)):
            h = torch.tanh(h + x[:, t])
        return h


def scaled(x, n):
    return x * n


def in_batch(batch):
    return batch["ids"][0].sum() + batch["scale"]


def broken(x):
    y = x.sin()
    torch._dynamo.graph_break()
    return y * x.size(0)


def two_sizes(x, y):
    return x + y


def branch(x):
    return x.sin() if x.size(0) > 5 else x.cos()


def keyed(x, options):
    return x + options.get("bias", 0) + len(options)


def ones(*shape):
    return torch.ones(shape)


def steps_of(module, values):
    def call(compiled):
        for value in values:
            module.step = value
            compiled(ones(2, 3))

    return call


def calls(*arguments):
    return lambda compiled: [compiled(*each) for each in arguments]


SIZES = [(ones(size),) for size in (4, 5, 6, 7, 8)]
PROGRAMS = {
    "sizes": (two_sizes, calls(*((x, x) for (x,) in SIZES))),
    "one tensor": (torch.sin, calls(*SIZES)),
    "size 1 first": (branch, calls((ones(1),), (ones(4),), (ones(7),), (ones(3),))),
    "a branch on the size": (branch, calls(*SIZES)),
    "two dims": (branch, calls((ones(4, 8),), (ones(4, 6),), (ones(5, 6),), (ones(6, 7),))),
    "numbers": (scaled, calls(*((ones(3), n) for n in (2, 3, 4, 5)))),
    "floats": (scaled, calls(*((ones(3), n) for n in (0.5, 1.5, 2.5)))),
    "numbers with 0 and 1": (scaled, calls(*((ones(3), n) for n in (0, 1, 2, 3)))),
    "an unrolled loop": (Scan(), calls(*((ones(2, n),) for n in (6, 4, 5, 3)))),
    "tensors in a dict": (in_batch, calls(*(({"ids": [ones(n)], "scale": 2},) for n in (3, 4, 5)))),
    "a graph break": (broken, calls(*SIZES)),
    "keys of a dict": (keyed, calls((ones(3), {}), (ones(3), {"bias": 1}), (ones(4), {}), (ones(4), {"bias": 2}))),
    "offsets in a storage": (torch.sin, lambda compiled: [compiled(ones(20)[first:8]) for first in (3, 1, 0)]),
    "equal sizes at first": (two_sizes, calls((ones(4, 1), ones(4, 1)), (ones(5, 1), ones(1, 6)), (ones(6, 1), ones(1, 7)))),
}


def compiles_of(fn, call, **options):
    """Return how often a function is compiled, counted by its backend's compile ids."""
    torch._dynamo.reset()
    with Watch() as watch:
        call(torch.compile(fn, backend="eager", **options))
    return sum(each.outcome == "compiled" for each in watch.compiles)


@pytest.mark.parametrize("dynamic", [None, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_dynamic_shapes_need_as_many_compilations_as_predicted(name, dynamic):
    fn, call = PROGRAMS[name]
    torch._dynamo.reset()
    with Watch(what_if=math.inf) as watch:
        call(torch.compile(fn, backend="eager", dynamic=dynamic))
    predicted = [each for each in watch.what_ifs if each.fix.code == "dynamic=True"]
    assert not watch.troubles
    assert predicted
    frames = {each.frame for each in predicted}
    others = sum(each.outcome == "compiled" and each.id.partition("/")[0] not in frames for each in watch.compiles)
    happened = compiles_of(fn, call, dynamic=True)
    closed = any(each.outcome == "no effect" for each in predicted)  # not traced to the end
    said = sum({(each.frame): each.compiles for each in predicted}.values()) + others
    assert happened == said or (closed and happened >= said), predicted


@pytest.mark.parametrize("values", [(0, 1, 2, 3), (5, 6, 7), (2, 2, 9)])
def test_an_int_of_a_module_is_followed_though_its_first_value_is_gone(values):
    """The attribute has its present value when the first call is traced again: what it was is known from the failed guard."""
    module = Steps()
    with Watch(what_if=math.inf) as watch:
        steps_of(module, values)(torch.compile(module, backend="eager"))
    setting = "torch._dynamo.config.allow_unspec_int_on_nn_module = True"
    predicted = next(each for each in watch.what_ifs if each.fix.code == setting)
    with torch._dynamo.config.patch(allow_unspec_int_on_nn_module=True):
        assert compiles_of(Steps(), lambda compiled: None) == 0
        module = Steps()
        assert compiles_of(module, steps_of(module, values)) == predicted.compiles


def test_a_hidden_int_of_a_module_is_followed_too():
    """The size changes in the same calls, and torch reports only it: what the int was is known from the other failed guard."""

    def growing(compiled, module):
        for size in (3, 4, 5, 6, 7):
            compiled(ones(size, 3))
            module.step += 1

    setting = "torch._dynamo.config.allow_unspec_int_on_nn_module = True"
    with Watch(what_if=math.inf) as watch:
        growing(torch.compile(module := Steps(), backend="eager"), module)
    predicted = next(each for each in watch.what_ifs if each.fix.code == setting and not each.together)
    assert predicted.outcome == "fewer"
    with torch._dynamo.config.patch(allow_unspec_int_on_nn_module=True):
        module = Steps()
        assert compiles_of(module, lambda compiled: growing(compiled, module)) == predicted.compiles


class Adapter(nn.Module):
    def __init__(self):
        super().__init__()
        self.load(2)

    def load(self, rank):
        self.down, self.up = nn.Parameter(ones(rank, 4)), nn.Parameter(ones(4, rank))

    def forward(self, x):
        return x + x @ self.down.T @ self.up.T


def test_sizes_that_changed_together_are_followed_though_the_first_parameters_are_gone():
    """torch reports the size of the first one: what the others were is known from the guards."""

    def serve(compiled, model):
        for rank in (2, 4, 8, 16):
            for adapter in model:
                adapter.load(rank)
            compiled(ones(3, 4))

    setting = "torch._dynamo.config.force_parameter_static_shapes = False"
    with Watch(what_if=math.inf) as watch:
        serve(torch.compile(model := nn.Sequential(Adapter(), Adapter()), backend="eager"), model)
    predicted = next(each for each in watch.what_ifs if each.fix.code == setting)
    assert (predicted.outcome, predicted.calls) == ("fewer", 4)
    with torch._dynamo.config.patch(force_parameter_static_shapes=False):
        model = nn.Sequential(Adapter(), Adapter())
        assert compiles_of(model, lambda compiled: serve(compiled, model)) == predicted.compiles


class Layer:
    def __init__(self):
        self.keys = None

    def update(self, x):
        self.keys = x if self.keys is None else torch.cat([self.keys, x])
        return self.keys


class Cache:
    def __init__(self):
        self.layers = [Layer(), Layer()]
        self.owner = self


def test_an_object_that_has_grown_since_an_earlier_call_is_copied_as_it_was():
    def attend(x, cache):
        return sum(layer.update(x).sum() for layer in cache.layers)

    def decode(compiled):
        cache = Cache()
        for _ in range(5):
            compiled(ones(2), cache)

    with Watch(what_if=math.inf) as watch:
        decode(torch.compile(attend, backend="eager"))
    assert not watch.troubles
    predicted = next(each for each in watch.what_ifs if each.fix.code == "dynamic=True")
    assert (predicted.calls, predicted.compiles) == (4, 3)  # torch takes equal sizes for one
    assert compiles_of(attend, decode, dynamic=True) == predicted.compiles


def test_fixes_of_two_causes_are_tried_together_where_none_helps_by_itself():
    """Under `dynamic=False`, the size and the int of the module each force a recompile in every call."""

    def call(compiled, module):
        for size in (3, 4, 5, 6, 7):
            module.step = 2 * size
            compiled(ones(size, 3))

    setting = "torch._dynamo.config.allow_unspec_int_on_nn_module = True"
    with Watch(what_if=math.inf) as watch:
        call(torch.compile(module := Steps(), backend="eager", dynamic=False), module)
    single = {each.outcome for each in watch.what_ifs if not each.together}
    predicted = {each.fix.code: (each.outcome, each.compiles) for each in watch.what_ifs if each.together}
    assert single == {"no effect"}
    assert predicted == {"dynamic=None": ("fewer", 2), setting: ("fewer", 2)}
    advice = {finding.rule: finding.advice for finding in watch.findings}
    proven = "(proven together: 2 compiles, not 5)"
    assert advice["DX102"].startswith(f"drop dynamic=False from torch.compile, together with {setting} {proven}")
    assert advice["DX101"].startswith(f"{setting}, together with dynamic=None {proven}")
    with torch._dynamo.config.patch(allow_unspec_int_on_nn_module=True):
        module = Steps()
        assert compiles_of(module, lambda compiled: call(compiled, module)) == 2


def test_fixes_are_not_advised_together_where_one_is_enough():
    """Without `dynamic=False`, torch makes the size dynamic itself."""
    with Watch(what_if=math.inf) as watch:
        compiled = torch.compile(module := Steps(), backend="eager")
        for size in (3, 4, 5, 6, 7):
            module.step = 2 * size
            compiled(ones(size, 3))
    assert not any(each.helps for each in watch.what_ifs if each.together)
    assert any(each.helps for each in watch.what_ifs if each.fix.code.startswith("torch._dynamo.config.allow_unspec_int"))


def test_a_fix_of_two_causes_counts_a_call_once():
    """`n` and `m` change in the same call: `dynamic=True` is the fix of both, and the call is one call."""

    def product(x, n, m):
        return (x * n if n > 0 else x) + m

    with Watch(what_if=math.inf) as watch:
        compiled = torch.compile(product, backend="eager")
        for n, m in ((4, 9), (3, 7), (-2, 5), (6, 3)):
            compiled(ones(3), n, m)
    (predicted,) = (each for each in watch.what_ifs if each.fix.code == "dynamic=True" and not each.together)
    assert predicted.calls == len(watch.compiles) == 3
    assert predicted.compiles == 2


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_an_earlier_call_is_traced_again_in_its_own_grad_mode(mode):
    """A service warms up with gradients, and then serves without."""

    def call(compiled):
        compiled(ones(3))
        with mode():
            for size in (4, 5, 6):
                compiled(ones(size))

    with Watch(what_if=math.inf) as watch:
        call(torch.compile(torch.sin, backend="eager", dynamic=False))
    predicted = {each.fix.code: (each.outcome, each.compiles) for each in watch.what_ifs if each.rule == "DX102"}
    assert not watch.troubles
    assert predicted["dynamic=True"] == ("fewer", 2)
    assert compiles_of(torch.sin, call, dynamic=True) == 2
    assert torch.is_grad_enabled()


def test_a_mark_that_raises_is_known_to_raise():
    """Where a loop fixes the size, `mark_dynamic` raises, and `maybe_mark_dynamic` helps nothing: neither is advised."""
    with Watch(what_if=math.inf) as watch:
        PROGRAMS["an unrolled loop"][1](torch.compile(Scan(), backend="eager"))
    results = {each.fix.code: each.result for each in watch.what_ifs}
    assert results["mark_dynamic(x, 1)"] == "raises ConstraintViolationError"
    assert results["maybe_mark_dynamic(x, 1)"] == results["dynamic=True"] == "no effect"
    (finding,) = watch.findings
    assert "mark_dynamic" not in finding.advice
    assert "dynamic=True" not in finding.advice


def test_a_tensor_that_breaks_the_graph_is_not_advised():
    """`float(t)` reads the value: passed as a tensor, it would break the graph in each call instead of recompiling."""

    def embedded(x, t):
        return (torch.full((x.size(0), 1), float(t)) * x).sin()

    with Watch(what_if=math.inf) as watch:
        compiled = torch.compile(embedded, backend="eager")
        for t in (1000, 800, 600):
            compiled(ones(3, 2), t)
    results = {each.fix.code: each.outcome for each in watch.what_ifs}
    assert results == {"dynamic=True": "removes", "pass a tensor": "leads to another"}
    (finding,) = watch.findings
    assert finding.advice == "compile with dynamic=True (proven: 1 compile, not 2)"


def test_marks_on_items_of_containers():
    with Watch(what_if=math.inf) as watch:
        PROGRAMS["tensors in a dict"][1](torch.compile(in_batch, backend="eager", dynamic=False))
    marked = next(each for each in watch.what_ifs if each.fix.kind == "mark")
    assert (marked.outcome, marked.calls, marked.compiles) == ("removes", 3, 1)


class Shifted(nn.Module):
    def forward(self, x):
        return x.sin() + 1


def test_two_sizes_of_an_argument_of_a_module_are_marked_together():
    """torch names the module's function otherwise than the code: the second size was not known when the mark was tried."""
    with Watch(what_if=math.inf) as watch:
        compiled = torch.compile(Shifted(), backend="eager")
        for size in (3, 4):
            compiled(ones(size, size + 2))
    assert {each.fix.code: each.outcome for each in watch.what_ifs} == {
        "maybe_mark_dynamic(x, 0) with maybe_mark_dynamic(x, 1)": "removes",
        "dynamic=True": "removes",
    }
    (finding,) = watch.findings
    assert finding.advice.startswith("maybe_mark_dynamic(x, 0) with maybe_mark_dynamic(x, 1) before the call (proven: ")


class Scaler:
    factor = 2.0

    def scale(self, x):
        return x * self.factor


def test_a_float_of_an_object_is_dynamic_though_its_first_value_is_gone():
    """A dynamic float has a guard in torch 2.11 that compares it with itself."""
    scaler = Scaler()
    with Watch(what_if=math.inf) as watch:
        compiled = torch.compile(scaler.scale, backend="eager")
        for scaler.factor in (1024.0, 512.0, 256.0):
            compiled(ones(3))
    (dynamic,) = (each for each in watch.what_ifs if each.fix.code == "dynamic=True")
    assert (dynamic.outcome, dynamic.calls, dynamic.compiles) == ("removes", 2, 1)


def test_what_is_known_of_a_fix_that_another_replaced_is_not_proven():
    """The second size changes in the third call: one mark is no longer enough, and later calls are not traced with it."""
    with Watch(what_if=math.inf) as watch:
        compiled = torch.compile(Shifted(), backend="eager")
        for shape in ((3, 4), (5, 4), (5, 6)):
            compiled(ones(*shape))
    known = {each.fix.code: (each.outcome, each.calls, each.compiles) for each in watch.what_ifs}
    assert known["maybe_mark_dynamic(x, 0) with maybe_mark_dynamic(x, 1)"] == ("removes", 3, 1)
    assert known["mark_dynamic(x, 0)"][0] == "not proven"


def test_an_argument_that_no_trace_can_replace_is_not_proven():
    """A tensor of a subclass may run code of the user when it is copied."""

    class Own(torch.Tensor):
        pass

    with Watch(what_if=math.inf) as watch:
        compiled = torch.compile(torch.sin, backend="eager", dynamic=False)
        for size in (3, 4):
            compiled(torch.ones(size).as_subclass(Own))
    marks = [each for each in watch.what_ifs if each.fix.kind == "mark"]
    assert all(each.outcome == "not proven" for each in marks)


def test_objects_and_lists_that_are_nested_deeply():
    class Link:
        def __init__(self, after):
            self.after, self.rows = after, torch.ones(2)

    def grow(x, link, lists):
        link.rows = torch.cat([link.rows, x[:1]])
        return x + link.rows.sum() + len(lists)

    link, lists = None, []
    for _ in range(2000):
        link, lists = Link(link), [lists]
    with Watch(what_if=math.inf) as watch:
        compiled = torch.compile(grow, backend="eager", dynamic=False)
        for size in (3, 4, 5):
            compiled(torch.ones(size), link, lists)
    assert not watch.troubles
    assert any(each.fix.code == "dynamic=True" and (each.calls, each.compiles) == (3, 1) for each in watch.what_ifs)


def test_an_earlier_view_is_restored_with_the_tensor_that_it_views():
    """Dynamo guards the sizes of the base too."""

    def call(compiled):
        data = ones(20)
        for first in (3, 1):
            compiled(data[first:8])

    with Watch(what_if=math.inf) as watch:
        call(torch.compile(lambda x: x / 2, backend="eager", dynamic=True))
    (finding,) = watch.findings
    assert finding.advice.startswith("pass x.clone(): ")
    (dynamic,) = (each for each in watch.what_ifs if each.fix.code == "dynamic=True")
    assert (dynamic.outcome, dynamic.calls, dynamic.compiles) == ("no effect", 2, 2)


def test_a_fix_with_which_the_function_would_run_eagerly_leads_to_another_graph_break():
    """A condition on a size that is dynamic breaks the graph in the loop, where torch cannot resume."""

    def attend(x):
        for _ in range(2):
            x = torch.nn.functional.dropout(x, training=x.size(0) > 9)
        return x

    with Watch(what_if=math.inf) as watch:
        compiled = torch.compile(attend, backend="eager", dynamic=False)
        for size in (3, 4, 5):
            compiled(ones(size))
    outcomes = {each.fix.code: (each.outcome, each.then is not None) for each in watch.what_ifs}
    assert outcomes["mark_dynamic(x, 0)"] == outcomes["dynamic=True"] == ("leads to another", True)
    (finding,) = watch.findings
    assert "mark_dynamic" not in finding.advice


class Average:
    def __init__(self):
        self.mean, self.updates = torch.zeros(3), 0

    def update(self, x):
        self.updates += 1
        self.mean.lerp_(x, 1 - min(0.999, (1 + self.updates) / (10 + self.updates)))
        return self.mean + 0


def averaged(watch, *, backend, dynamic=None):
    torch._dynamo.reset()
    average = Average()
    compiled = torch.compile(average.update, backend=backend, dynamic=dynamic)
    with watch:
        for _ in range(12):
            compiled(torch.ones(3))
    return watch


def test_a_guard_that_the_backend_adds_is_not_predicted():
    """The decomposition of `lerp_` compares its weight with 0.5: AOTAutograd adds the guard, which no trace of Dynamo has."""
    watch = averaged(Watch(what_if=math.inf), backend="aot_eager_decomp_partition")
    real = len(averaged(Watch(), backend="aot_eager_decomp_partition", dynamic=True).compiles)
    (tried,) = [what_if for what_if in watch.what_ifs if what_if.fix.code == "dynamic=True"]
    if any(reason.by_backend for recompile in watch.recompiles for reason in recompile.reasons):
        assert real > 1
        assert tried.outcome == "not proven"
        assert not any("proven:" in finding.advice for finding in watch.findings)
    else:  # torch 2.11 adds none
        assert tried.compiles == real == 1


def refuses_numbers(graph, inputs):
    """A backend that fails for a graph with a symbolic number, as that of AOTAutograd does for an exponent."""
    if any(isinstance(value, (torch.SymInt, torch.SymFloat)) for value in inputs):
        raise ValueError("symbolic")
    return graph.forward


def test_a_fix_with_which_a_backend_may_fail_is_not_proven():
    torch._dynamo.reset()
    compiled = torch.compile(scaled, backend=refuses_numbers)
    with Watch(what_if=math.inf) as watch:
        compiled(torch.ones(3), 2)
        with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
            compiled(torch.ones(3), 3)  # torch makes the number dynamic
    (tried,) = [what_if for what_if in watch.what_ifs if what_if.fix.code == "dynamic=True"]
    assert tried.outcome == "not proven"
    assert "the backend failed" in tried.reason
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
        torch.compile(scaled, backend=refuses_numbers, dynamic=True)(torch.ones(3), 2)
