"""Findings on causes that programs of the corpus have: the name, the line and the advice that a user can follow."""

from __future__ import annotations

import functools

import numpy
import pytest
import torch
from programs_runner import PROGRAMS

import dynx

X = torch.ones(4)


def findings_after(*calls):
    with dynx.watch() as watch:
        for call in calls:
            call()
    return watch.findings


class Warmup:
    """Counts its steps; the branch depends on a number computed from them."""

    def __init__(self):
        self.steps = 0

    def update(self, x):
        self.steps += 1
        rate = 1 - 0.5**self.steps
        if rate > 0.9:
            return x * rate
        return -x


def test_branch_on_a_number_computed_from_a_dynamic_one_is_a_finding_at_the_branch():
    """The guard is `1 - 0.5 ** torch.sym_float(...) <= 0.9`: the user knows the branch, not this expression."""
    update = torch.compile(Warmup().update, backend="eager")
    findings = findings_after(*[lambda: update(X)] * 5)
    (branch,) = (finding for finding in findings if "branch" in finding.title)
    assert branch.title == "if rate > 0.9: takes the other branch: self.steps is 3"
    assert "branch outside the compiled function" in branch.advice


class Scaled(torch.nn.Module):
    def __init__(self, index, depth):
        super().__init__()
        self.scale, self.last = 1.0 / (index + 1), index == depth - 1
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x):
        y = self.inner(x) * self.scale
        return y if self.last else torch.relu(y)


def test_finding_on_instances_that_share_code_names_every_attribute_that_differs():
    blocks = [Scaled(index, 3) for index in range(3)]
    for block in blocks:
        block.compile(backend="eager")
    (finding,) = findings_after(*[functools.partial(block, X) for block in blocks])
    assert finding.rule == "DX115"
    assert finding.title.startswith("3 instances of Scaled share its compiled code: self.scale 1.0, then 0.5")
    assert finding.title.endswith("; self.last differs too")


class Client:
    def __init__(self, site):
        self.site, self.priors = site, {"a": torch.ones(4), "b": torch.zeros(4)}

    @torch.compile(backend="eager")
    def loss(self, x):
        return x + self.priors[self.site]


def test_advice_on_instances_of_a_class_that_is_no_module_does_not_speak_of_a_model():
    first, second = Client("a"), Client("b")
    (finding,) = findings_after(lambda: first.loss(X), lambda: second.loss(X))
    assert "model" not in finding.advice
    assert finding.advice.startswith("pass what depends on self.site as an argument")


@pytest.mark.parametrize(("name", "value", "setter"), [("num_threads", 2, "torch.set_num_threads()")])
def test_advice_on_global_state_names_the_function_that_sets_it(name, value, setter):
    double = torch.compile(lambda x: x * 2, backend="eager")
    torch.set_num_threads(1)

    def changed():
        torch.set_num_threads(value)
        double(X)

    (finding,) = findings_after(lambda: double(X), changed)
    assert name in finding.title
    assert finding.advice == f"call {setter} once, before the first call, and leave it"


class Number:
    factor = 2


class Columns:
    @functools.singledispatchmethod
    def encode(self, column):
        return X

    @encode.register
    def _(self, column: Number):
        return X * column.factor


def test_cache_of_functools_is_named_as_such():
    columns, number = Columns(), Number()
    encode = torch.compile(lambda x: x + columns.encode(number), backend="eager")
    (finding,) = findings_after(lambda: encode(X), lambda: encode(X))
    if finding.rule == "DX206":
        pytest.skip("this torch breaks the graph at a singledispatchmethod")
    assert "singledispatch's cache of types" in finding.title
    assert finding.advice.startswith("functools fills this cache in the first call: call the uncompiled function once before")


class Adapter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.active, self.weights = "legal", {"legal": torch.ones(4), "retail": torch.zeros(4)}

    def forward(self, x):
        return x + self.weights[self.active]


def test_finding_on_an_attribute_set_outside_names_the_line_of_the_call():
    """The line in forward only reads the attribute; it was changed before the call."""
    module = Adapter()
    compiled = torch.compile(module, backend="eager")

    def switched():
        module.active = "retail"
        compiled(X)  # the call

    (finding,) = findings_after(lambda: compiled(X), switched)
    assert finding.called_from is not None
    assert finding.called_from.line == switched.__code__.co_firstlineno + 2
    assert "copy what self.active selects into one tensor" in finding.advice


class Counted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.damped = 0

    def forward(self, x):
        def damp(x):
            self.damped += 1
            return x * 0.5

        return torch.cond(x.sum() > 2, damp, lambda x: x * 1.0, (x,))


def test_attribute_that_a_branch_of_torch_cond_changes_is_named():
    module = torch.compile(Counted(), backend="eager", fullgraph=True)
    with dynx.watch() as watch, pytest.raises(Exception, match=r"[Hh]igher [Oo]rder"):
        module(X)
    (finding,) = watch.findings
    assert finding.rule == "DX302"
    assert "side effects" in finding.title


WEIGHTS = {"a": 1.0, "b": 2.0}


def weighted(x):
    values = iter(WEIGHTS.values())
    y = x * next(values)
    print("first")
    return y + next(values)


def test_break_after_which_dynamo_cannot_rebuild_a_value_is_one_finding_that_says_so(capsys):
    with dynx.watch() as watch:
        torch.compile(weighted, backend="eager")(X)
    if [graph_break.kind for graph_break in watch.graph_breaks] == ["Failed to trace builtin operator"]:
        pytest.skip("this torch rebuilds iterators of dicts after a graph break")
    (finding,) = watch.findings
    assert (finding.rule, finding.title) == (
        "DX201",
        "print() splits the graph in two; weighted runs eagerly: Dynamo cannot rebuild DictValuesIterator outside the graph",
    )


class Noisy(torch.nn.Module):
    """A layer whose size differs from that of its siblings, with a graph break in its term of the loss."""

    def __init__(self, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))

    def term(self):
        scale = self.weight.sum()
        print("term")
        return scale * 2


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([Noisy(size) for size in (3, 5)])

    def terms(self):
        try:
            return sum([layer.term() for layer in self.layers])
        finally:
            self.done = True


def test_sizes_of_instances_that_a_graph_break_keeps_out_of_their_callers_graph_name_the_break(capsys):
    net = Net()
    findings = findings_after(lambda: torch.compile(net.terms, backend="eager")())
    (sizes,) = (finding for finding in findings if finding.rule == "DX102")
    line = Noisy.term.__code__.co_firstlineno + 2
    assert sizes.advice.startswith(f"remove the graph break at line {line}: each Noisy is then part of the graph of its caller")


class Rolling:
    """Holds the last columns of its input, a view whose strides differ from those of the first state."""

    def __init__(self):
        self.state = torch.zeros(2, 3)

    def step(self, x):
        window = torch.cat([self.state, x], dim=1)
        self.state = window[:, -3:]
        return window.sum()


def test_finding_on_strides_of_a_stored_tensor_says_to_store_it_in_one_memory_format():
    compiled = torch.compile(Rolling().step, backend="eager")
    (finding,) = findings_after(*[lambda: compiled(torch.ones(2, 1))] * 2)
    assert (finding.rule, finding.title) == ("DX117", "self.state.stride(0) 3, then 4")
    assert finding.advice.startswith("store self.state in one memory format: .contiguous()")


def test_advice_on_a_numpy_array_names_the_array_and_can_be_followed():
    """Dynamo traces a numpy array as `___from_numpy(x)`, which a user cannot write, and `mark_dynamic` takes no array."""

    def normalized(x):
        return (x - x.mean()) / x.std()

    compiled = torch.compile(normalized, backend="eager")
    (finding,) = findings_after(*[functools.partial(compiled, numpy.ones(size)) for size in (4, 5)])
    assert finding.title == "x.shape[0] 4, then 5"
    assert finding.advice.startswith("compile with dynamic=True")
    torch._dynamo.reset()
    followed = torch.compile(normalized, backend="eager", dynamic=True)
    assert not findings_after(*[functools.partial(followed, numpy.ones(size)) for size in (4, 5)])


def test_recompiles_inside_a_library_after_its_graph_break_are_part_of_the_finding_on_the_break(monkeypatch):
    monkeypatch.syspath_prepend(PROGRAMS / "site-packages")
    from fakelib.counting import smooth

    compiled = torch.compile(lambda signal: smooth(signal) + 1, backend="eager")
    (finding,) = findings_after(lambda: compiled(X))
    assert finding.rule == "DX501"
    assert finding.title.endswith("; 1 recompile inside fakelib")
    assert any("_scaled" in line for line in finding.evidence)


def test_print_in_a_library_is_advised_an_option_of_torch_that_removes_the_break(monkeypatch):
    monkeypatch.syspath_prepend(PROGRAMS / "site-packages")
    from fakelib.counting import announced

    (finding,) = findings_after(lambda: torch.compile(announced, backend="eager")(X))
    assert "reorderable_logging_functions.add(print)" in finding.advice
    monkeypatch.setattr(torch._dynamo.config, "reorderable_logging_functions", {print})
    torch._dynamo.reset()
    assert not findings_after(lambda: torch.compile(announced, backend="eager")(X))


class Quantized(torch.nn.Module):
    def __init__(self, scale, as_tensor):
        super().__init__()
        if as_tensor:
            self.register_buffer("scale", torch.tensor(scale))
        else:
            self.scale = scale

    def forward(self, x):
        return x * self.scale


@pytest.mark.parametrize("as_tensor", [False, True])
def test_advice_on_instances_that_differ_by_a_float_is_to_make_it_a_tensor(as_tensor):
    layers = [Quantized(scale, as_tensor) for scale in (0.5, 0.25, 0.125)]
    for layer in layers:
        layer.compile(backend="eager")
    findings = findings_after(*[functools.partial(layer, X) for layer in layers])
    assert [finding.rule for finding in findings] == ([] if as_tensor else ["DX115"])
    assert all(finding.advice.startswith("make self.scale a tensor, such as a buffer") for finding in findings)


def denoise(audio, noise):
    return audio * 2, audio.sum() if noise is None else audio.mean() + noise


def test_new_strides_are_the_cause_of_a_recompile_though_an_entry_for_another_argument_fails_too():
    """The entries fail because of the strides, and because `noise` is None, for which there is an entry already."""
    compiled = torch.compile(denoise, backend="eager", dynamic=False)
    wide = torch.ones(2, 6)
    calls = [(wide, None), (wide, X.sum()), (torch.ones(6, 2).T, None)]
    findings = findings_after(*[functools.partial(compiled, *call) for call in calls])
    assert {finding.title for finding in findings} == {"noise None, then a Tensor", "audio.stride(0) 6, then 1"}


def retried(fn):
    def wrapper(self, *args):
        return fn(self, *args)

    return wrapper


class Denoiser(torch.nn.Module):
    @retried
    def forward(self, sample, noise):
        return sample * 2 + noise.sum()


def test_argument_behind_a_decorator_with_a_named_parameter_has_its_own_name():
    """In `wrapper(self, *args)`, `args[0]` is the parameter after `self`."""
    compiled = torch.compile(Denoiser(), backend="eager")
    (finding,) = findings_after(*[functools.partial(compiled, torch.ones(size, 3), X) for size in (8, 12)])
    assert finding.title == "sample.size(0) 8, then 12"
    assert finding.advice.startswith("mark_dynamic(sample, 0) before the call")


def test_finding_on_a_smaller_last_batch_names_drop_last():
    compiled = torch.compile(lambda x: x * 2, backend="eager")
    (finding,) = findings_after(*[functools.partial(compiled, torch.ones(size, 3)) for size in (16, 16, 10)])
    assert (
        finding.advice
        == "mark_dynamic(x, 0) before the call; or pad to one size; of a smaller last batch: drop_last=True in the DataLoader"
    )


@pytest.mark.parametrize(("later", "advised"), [("mean", "'mean'"), (torch.ones(4), "a tensor that does the same")])
def test_a_value_that_was_none_is_set_before_the_first_call(later, advised):
    class Options:
        def __init__(self):
            self.bias = None

    def apply(x, options):
        return x.cos() if options.bias is None else x.sin() if options.bias == "mean" else x + options.bias

    options = Options()
    compiled = torch.compile(apply, backend="eager")

    def set_bias():
        options.bias = later

    found = findings_after(lambda: compiled(X, options), set_bias, lambda: compiled(X, options))
    assert f"instead of None, {advised}" in found[0].advice
