"""Where torch.compile reuses the wrong code or gives up silently, first torch, then dynx."""

from __future__ import annotations

import copy
import functools
import gc
import weakref

import pytest
import torch
from torch._dynamo import config

import dynx
from dynx._torch.compilation.isolation import has_regions
from dynx.errors import DynxWarning

# the backends here write into a list, which cannot be compared by value
pytestmark = [
    pytest.mark.filterwarnings("ignore:backend .* looks like one of before:dynx.errors.DynxWarning"),
    pytest.mark.filterwarnings("ignore:.* reached recompile_limit:dynx.errors.DynxWarning"),
]
BOTH = pytest.mark.parametrize("compile", [torch.compile, dynx.compile], ids=["torch", "dynx"])


def add(x):
    return x.sin() + 1


def broken(x):
    x = x + 1
    torch._dynamo.graph_break()
    return x * 2


def is_dynx(compile):
    return compile is dynx.compile


def with_level(gm, inputs, level=0, asked=None):
    if asked is not None:
        asked.append(level)
    return gm.forward


@BOTH
def test_a_backend_made_anew_is_the_same_backend(compile, backends):
    asked, x = backends.asked, torch.ones(3)
    backend = backends.named("lambda")
    for _ in range(5):
        compile(add, backend=lambda gm, inputs: backend(gm, inputs))(x)
    for _ in range(5):
        compile(add, backend=functools.partial(backend))(x)
    assert len(asked) == (2 if is_dynx(compile) else 10 - 2)  # torch reaches its limit of 8


@BOTH
def test_partials_that_differ_are_told_apart(compile, backends):
    for level in (1, 2, 1, 2):
        compile(add, backend=functools.partial(with_level, level=level, asked=backends.asked))(torch.ones(3))
    assert backends.asked == ([1, 2] if is_dynx(compile) else [1, 2, 1, 2])


@BOTH
def test_many_backends_do_not_starve_each_other(compile, backends):
    for number in range(20):
        f = compile(add, backend=backends.named(number), dynamic=False)
        for size in range(1, 5):
            f(torch.ones(size))
    if is_dynx(compile):
        assert backends.asked == [number for number in range(20) for _ in range(4)]
    else:
        assert len(backends.asked) == 8


@BOTH
def test_shapes_of_one_backend_leave_room_for_another(compile, backends):
    a = compile(add, backend=backends.named("a"), dynamic=False)
    for size in range(1, 12):
        a(torch.ones(size))
    compile(add, backend=backends.named("b"))(torch.ones(3))
    assert backends.asked.count("b") == is_dynx(compile)


@BOTH
def test_fullgraph_is_not_served_code_with_a_graph_break(compile, backends):
    backend = backends.named("one")
    compile(broken, backend=backend)(torch.ones(3))
    strict = compile(broken, backend=backend, fullgraph=True)
    if is_dynx(compile):
        with pytest.raises(torch._dynamo.exc.Unsupported):
            strict(torch.ones(3))
    else:
        assert strict(torch.ones(3)).tolist() == [4.0] * 3


@BOTH
def test_a_changed_configuration_compiles_again(compile, backends):
    def with_item(x):
        return x.sum().item() + x

    backend = backends.named("one")
    with config.patch(capture_scalar_outputs=False):
        compile(with_item, backend=backend)(torch.ones(3))
    first = len(backends.asked)
    f = compile(with_item, backend=backend)
    with config.patch(capture_scalar_outputs=True):
        f(torch.ones(3)), f(torch.ones(3))
    assert len(backends.asked) - first == is_dynx(compile)


def test_what_torch_compiled_under_another_configuration_is_not_run(backends):
    """The function was compiled by torch.compile, with the same backend, before dynx.compile met it."""

    def fn(x):
        return x + 1

    backend = backends.named("a")
    torch.compile(fn, backend=backend)(torch.ones(3))
    compiled = dynx.compile(fn, backend=backend)
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        compiled(torch.ones(3))
    assert backends.asked == ["a", "a"]


def test_two_configurations_in_turn_compile_twice_for_each_frame(backends):
    f = dynx.compile(broken, backend=backends.named("one"))
    for turn in range(100):
        with config.patch(capture_scalar_outputs=bool(turn % 2)):
            f(torch.ones(3))
    assert len(backends.asked) == 2 * 2  # the function and what comes after the break


@BOTH
def test_built_in_modules_do_not_starve_each_other(compile, backends):
    names = ("ReLU", "GELU", "Tanh", "Sigmoid", "SiLU", "ELU", "CELU", "SELU", "Softplus", "Mish", "Hardtanh")
    backend = backends.named("one")
    for name in names:
        compile(getattr(torch.nn, name)(), backend=backend)(torch.ones(3))
    assert len(backends.asked) == (11 if is_dynx(compile) else 8)


@BOTH
def test_a_rebound_global_makes_another_backend(compile, backends, monkeypatch):
    # the same function object for torch; made anew for dynx
    monkeypatch.setitem(globals(), "helper", backends.named("before"))
    compile(add, backend=_calls_helper())(torch.ones(3))
    monkeypatch.setitem(globals(), "helper", backends.named("after"))
    compile(add, backend=_calls_helper())(torch.ones(3))
    compile(add, backend=_calls_helper())(torch.ones(3))
    assert backends.asked == (["before", "after"] if is_dynx(compile) else ["before", "after", "after"])


def _calls_helper():
    return lambda gm, inputs: helper(gm, inputs)  # noqa: F821 - set by the test


@pytest.mark.parametrize("cond_first", [True, False], ids=["cond first", "cond last"])
def test_a_branch_of_cond_is_compiled_with_the_backend_asked_for(backends, cond_first):
    """The case that asked for BACKEND_MATCH: torch.cond compiles with "eager" what another backend compiles too."""

    def with_cond():
        return torch.cond(torch.tensor(True), add, torch.cos, (torch.ones(3),))

    f = dynx.compile(add, backend=backends.named("mine"))
    steps = [with_cond, lambda: f(torch.ones(3))]
    results = [step() for step in (steps if cond_first else steps[::-1])]
    assert backends.asked == ["mine"]
    assert torch.equal(*results)


@BOTH
def test_a_stance_without_compiling_runs_no_other_backends_code(compile, backends):
    ran = []

    def running(name):
        def backend(gm, inputs):
            def run(*args):
                ran.append(name)
                return gm.forward(*args)

            return run

        return backend

    x = torch.ones(3)
    compile(add, backend=running("a"))(x)
    b = compile(add, backend=running("b"))
    ran.clear()
    with torch.compiler.set_stance("eager_on_recompile"):
        b(x)
    assert ran == ([] if is_dynx(compile) else ["a"])


@BOTH
@pytest.mark.filterwarnings("ignore:.* besides 'Backends:dynx.errors.DynxWarning")
def test_a_forced_backend_takes_nothing_of_the_limit(compile, backends):
    """torch keeps what the forced backend compiled among the function's own entries, for good."""
    f = compile(add, backend=backends.named("own"), dynamic=False)
    with torch.compiler.set_stance("default", force_backend="eager"):
        for size in range(1, 9):
            f(torch.ones(size))
    for size in range(11, 19):
        f(torch.ones(size))
    assert len(backends.asked) == (8 if is_dynx(compile) else 0)


class Net(torch.nn.Module):
    def forward(self, x):
        return x + 1


def test_what_compiles_under_a_stance_alone_is_told_when_it_does(backends):
    with torch.compiler.set_stance("default", force_backend=backends.named("forced")):
        f = dynx.compile(add, backend=backends.named("own"))  # compiles nothing yet
    f(torch.ones(3))
    with torch.compiler.set_stance("default", force_backend=backends.named("forced")):
        f = dynx.compile(add, backend=backends.named("own"))
        with pytest.warns(DynxWarning, match="besides"):
            f(torch.ones(3))
    assert backends.asked == ["own", "forced"]


FORCED = [(lambda: add, r".*test_compile.py:\d+ in add"), (Net, "Net"), (lambda: torch.nn.Sequential(Net()), "Sequential")]


@pytest.mark.parametrize(("make", "name"), FORCED, ids=["function", "module", "torch's module"])
def test_a_forced_backend_is_told(make, name):
    """A stance reads as if it lasted for its block only; torch says nothing of what it leaves behind."""
    f = dynx.compile(make(), backend="aot_eager")
    with torch.compiler.set_stance("default", force_backend="eager"):
        with pytest.warns(DynxWarning, match=f"{name} is compiled with backend 'eager' besides 'aot_eager'") as told:
            f(torch.ones(3))
        f(torch.ones(3))  # an error, were it told again
    assert len(told) == 1
    f(torch.ones(3))


def test_what_changed_is_told_with_both_values(backends):
    partials = [functools.partial(with_level, level=level) for level in (1, 2)]
    x = torch.ones(3)
    f = dynx.compile(broken, backend=partials[0])
    with dynx.watch() as w:
        f(x)
        with config.patch(capture_scalar_outputs=True):
            f(x)
        f(x)
        dynx.compile(broken, backend=partials[1])(x)
        dynx.compile(broken, backend=partials[1], dynamic=True)(x)
    told = [[(each.kind, each.source, each.expected, each.got) for each in found.reasons] for found in w.recompiles]
    setting = ("config", "torch._dynamo.config.capture_scalar_outputs", "False", "True")
    backend = ("backend", "backend", "partial(with_level, level=1)", "partial(with_level, level=2)")
    dynamic = ("config", "dynamic", "None", "True")
    assert told == [[setting], [setting], [backend], [backend], [dynamic], [dynamic]]  # the function, and after the break
    assert [reason.location.file for found in w.recompiles for reason in found.reasons] == [__file__] * 6


class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x):
        torch._dynamo.graph_break()
        return self.linear(x)


def test_a_module_becomes_what_torch_makes_of_it(backends):
    module = Layers()
    compiled = dynx.compile(module, backend=backends.named("one"))
    x = torch.ones(2, 3)
    assert type(compiled) is type(torch.compile(module))
    assert torch.equal(compiled(x), module(x))
    assert list(compiled.state_dict()) == list(torch.compile(module).state_dict())
    first = len(backends.asked)
    with config.patch(capture_scalar_outputs=True):
        compiled(x), compiled(x)
    compiled(x)
    assert len(backends.asked) == 2 * first


@BOTH
def test_it_answers_and_copies_as_torch_does(compile, backends):
    options = {"max_autotune": True}
    for compiled in (compile(add, options=options), compile(Layers(), options=options)):
        assert compiled.get_compiler_config()["max_autotune"] is True
    module = copy.deepcopy(compile(Layers(), backend=backends.named("one")))
    module(torch.ones(2, 3))
    assert backends.asked


def test_it_decorates(backends):
    @dynx.compile(backend=backends.named("one"))
    def decorated(x, *, scale=2):
        """Scale."""
        return x * scale

    assert decorated(torch.ones(2), scale=3).tolist() == [3.0, 3.0]
    assert (decorated.__name__, decorated.__doc__) == ("decorated", "Scale.")
    assert backends.asked == ["one"]


def test_inside_compiled_code_it_is_inlined(backends):
    inner = dynx.compile(add, backend=backends.named("inner"))
    outer = torch.compile(lambda x: inner(x) * 2, backend=backends.named("outer"), fullgraph=True)
    assert torch.equal(outer(torch.ones(3)), add(torch.ones(3)) * 2)
    assert backends.asked == ["outer"]


def test_methods_and_callable_objects(backends):
    class Doubles:
        def __call__(self, x):
            return x * 2

        def method(self, x):
            return x * 3

    assert dynx.compile(Doubles(), backend=backends.named("object"))(torch.ones(1)).item() == 2
    assert dynx.compile(Doubles().method, backend=backends.named("method"))(torch.ones(1)).item() == 3
    assert backends.asked == ["object", "method"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"fn": 3}, Exception),
        ({"backend": "no such backend"}, torch._dynamo.exc.InvalidBackend),
        ({"mode": "default", "options": {"max_autotune": True}}, RuntimeError),
        ({"no_such_keyword": 1}, TypeError),
    ],
)
def test_what_torch_refuses_is_refused_alike(arguments, error):
    given = {"fn": add, **arguments}
    fn = given.pop("fn")
    with pytest.raises(error) as torchs:
        torch.compile(fn, **given)
    with pytest.raises(error) as ours:
        dynx.compile(fn, **given)
    assert type(torchs.value) is type(ours.value)
    assert str(torchs.value) == str(ours.value)


def test_options_are_left_as_they_were(backends):
    options = {"guard_filter_fn": lambda guards: [True for _ in guards]}
    dynx.compile(add, backend=backends.named("one"), options=options)
    assert list(options) == ["guard_filter_fn"]


def test_reset_and_disable(backends):
    f = dynx.compile(add, backend=backends.named("one"))
    f(torch.ones(3))
    torch.compiler.reset()
    f(torch.ones(3))
    assert backends.asked == ["one", "one"]
    assert dynx.compile(add, backend=backends.named("off"), disable=True) is add


def test_isolated_calls_stay_isolated(backends):
    if not has_regions():
        with pytest.raises(TypeError, match="isolate_recompiles"):
            dynx.compile(add, backend="eager", isolate_recompiles=True)
        return
    backend = backends.named("one")
    for _ in range(3):
        dynx.compile(add, backend=backend, isolate_recompiles=True)(torch.ones(3))
    assert backends.asked == ["one"] * 3


@BOTH
def test_what_is_compiled_already_can_be_compiled(compile, backends):
    x = torch.ones(2, 3)
    for module in (torch.nn.Linear(3, 3), Layers()):
        compiled = compile(compile(module, backend="eager"), backend="eager")
        assert torch.equal(compiled(x), module(x))
    assert torch.equal(compile(torch.compile(add, backend="eager"), backend="eager")(x), add(x))


@BOTH
def test_instances_of_one_class_share_what_was_compiled(compile, backends):
    backend = backends.named("one")
    for _ in range(20):
        compile(torch.nn.ReLU(), backend=backend)(torch.ones(3))
    assert backends.asked == ["one"]


def scaling(level):
    class Scales:
        def __init__(self):
            self.level = level

        def __call__(self, gm, inputs):
            level = self.level
            return lambda *args: [each * level for each in gm(*args)]

    return Scales


@BOTH
def test_a_backend_that_was_changed_is_another(compile, backends):
    Scales = scaling(1)
    changed, x = Scales(), torch.ones(1)
    compile(torch.neg, backend=changed)(x)
    changed.level = 2
    assert compile(torch.neg, backend=Scales())(x).item() == -1
    assert compile(torch.cos, backend=changed)(torch.zeros(1)).item() == 2
    assert compile(torch.cos, backend=Scales())(torch.zeros(1)).item() == 1


@BOTH
def test_a_backend_changed_before_it_compiles_is_not_shared(compile, backends):
    Scales = scaling(1)
    changed = Scales()
    f = compile(torch.cos, backend=changed)
    changed.level = 2
    assert f(torch.zeros(1)).item() == 2
    changed.level = 1
    assert compile(torch.cos, backend=Scales())(torch.zeros(1)).item() == 1


@BOTH
def test_a_compiled_module_can_be_saved(compile, backends, tmp_path):
    x, module = torch.ones(2, 3), compile(torch.nn.Linear(3, 3), backend="eager")
    torch.save(module, tmp_path / "module.pt")
    loaded = torch.load(tmp_path / "module.pt", weights_only=False)
    assert type(loaded) is type(module)
    assert torch.equal(loaded(x), module(x))


@BOTH
def test_nothing_is_kept_alive(compile, backends):
    kept = compile(torch.nn.ReLU(), backend="eager")
    module = torch.nn.Linear(3, 3)
    compiled = compile(module, backend="eager")
    compiled(torch.ones(2, 3))
    backend = backends.named("mine")
    f = compile(add, backend=backend)
    f(torch.ones(3))
    gone = [weakref.ref(each) for each in (module, backend, f)]
    del module, compiled, backend, f
    torch._dynamo.reset()
    gc.collect()
    assert [each() for each in gone] == [None] * 3
    assert kept(torch.ones(1)).item() == 1


@BOTH
def test_a_backend_is_reset_once(compile, backends):
    class Resets:
        def __call__(self, gm, inputs):
            return gm.forward

        def reset(self):
            backends.asked.append("reset")

    f = compile(add, backend=Resets())
    f(torch.ones(3))
    torch._dynamo.reset()
    assert backends.asked == ["reset"]


@pytest.mark.filterwarnings("ignore:.* besides 'Backends:dynx.errors.DynxWarning")
def test_a_forced_backend_needs_no_hash(backends):
    class Forced:
        __hash__ = None

        def __call__(self, gm, inputs):
            return gm.forward

    f = dynx.compile(add, backend=backends.named("own"))
    with torch.compiler.set_stance("default", force_backend=Forced()):
        assert torch.equal(f(torch.ones(3)), add(torch.ones(3)))


def test_static_methods_and_the_name_of_the_argument(backends):
    class Holds:
        @dynx.compile(backend="eager")
        @staticmethod
        def static(x):
            return x + 1

    assert Holds().static(torch.ones(1)).item() == Holds.static(torch.ones(1)).item() == 2
    assert torch.equal(dynx.compile(model=add, backend="eager")(torch.ones(3)), add(torch.ones(3)))
    with pytest.raises(TypeError, match="no_such_keyword"):
        dynx.compile(backend="eager", no_such_keyword=1)
