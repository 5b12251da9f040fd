"""Where torch.compile reuses the wrong code or runs eagerly without notice: what torch does, and what dynx.compile does."""

from __future__ import annotations

import copy
import functools
import gc
import operator
import weakref

import pytest
import torch
from torch._dynamo import config

import dynx
from dynx.errors import DynxWarning, UsageError

pytestmark = [  # backends that append to a list cannot be compared by value
    pytest.mark.filterwarnings("ignore:backend .* has the same code as an earlier backend:dynx.errors.DynxWarning"),
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


def with_level(gm, inputs, level=0, levels=None):
    if levels is not None:
        levels.append(level)
    return gm.forward


@BOTH
def test_lambdas_of_the_same_code_and_partials_of_the_same_function_share_compiles(compile, backends):
    """torch advises functools.partial for changing a backend, yet compiles each partial again."""
    x = torch.ones(3)
    backend = backends.named("lambda")
    for _ in range(5):
        compile(add, backend=lambda gm, inputs: backend(gm, inputs))(x)
    for _ in range(5):
        compile(add, backend=functools.partial(backend))(x)
    assert len(backends.compiled) == (2 if is_dynx(compile) else 8)  # 8: torch reaches its limit


@BOTH
def test_partial_backends_with_different_options_compile_separately(compile, backends):
    for level in (1, 2, 1, 2):
        compile(add, backend=functools.partial(with_level, level=level, levels=backends.compiled))(torch.ones(3))
    assert backends.compiled == ([1, 2] if is_dynx(compile) else [1, 2, 1, 2])


@pytest.mark.slow
@BOTH
def test_many_backends_do_not_share_one_recompile_limit(compile, backends):
    for number in range(20):
        f = compile(add, backend=backends.named(number), dynamic=False)
        for size in range(1, 5):
            f(torch.ones(size))
    if is_dynx(compile):
        assert backends.compiled == [number for number in range(20) for _ in range(4)]
    else:
        assert len(backends.compiled) == 8


@BOTH
def test_recompiles_of_one_backend_do_not_count_towards_the_limit_of_another(compile, backends):
    a = compile(add, backend=backends.named("a"), dynamic=False)
    for size in range(1, 12):
        a(torch.ones(size))
    compile(add, backend=backends.named("b"))(torch.ones(3))
    assert backends.compiled.count("b") == is_dynx(compile)


@BOTH
def test_fullgraph_does_not_reuse_code_with_a_graph_break(compile, backends):
    backend = backends.named("a")
    compile(broken, backend=backend)(torch.ones(3))
    strict = compile(broken, backend=backend, fullgraph=True)
    if is_dynx(compile):
        with pytest.raises(torch._dynamo.exc.Unsupported):
            strict(torch.ones(3))
    else:
        assert strict(torch.ones(3)).tolist() == [4.0] * 3


@BOTH
def test_changed_dynamo_config_compiles_again(compile, backends):
    def with_item(x):
        return x.sum().item() + x

    backend = backends.named("a")
    with config.patch(capture_scalar_outputs=False):
        compile(with_item, backend=backend)(torch.ones(3))
    first = len(backends.compiled)
    f = compile(with_item, backend=backend)
    with config.patch(capture_scalar_outputs=True):
        f(torch.ones(3)), f(torch.ones(3))
    assert len(backends.compiled) - first == is_dynx(compile)


def test_code_that_torch_compile_made_under_another_config_is_not_reused(backends):
    """torch.compile compiled the function with the same backend before dynx.compile did."""

    def fn(x):
        return x + 1

    backend = backends.named("a")
    torch.compile(fn, backend=backend)(torch.ones(3))
    compiled = dynx.compile(fn, backend=backend)
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        compiled(torch.ones(3))
    assert backends.compiled == ["a", "a"]


def test_alternating_dynamo_configs_compile_each_frame_twice(backends):
    f = dynx.compile(broken, backend=backends.named("a"))
    for index in range(100):
        with config.patch(capture_scalar_outputs=bool(index % 2)):
            f(torch.ones(3))
    assert len(backends.compiled) == 2 * 2  # the function and its resume function


@BOTH
def test_torch_nn_modules_do_not_share_one_recompile_limit(compile, backends):
    names = ("ReLU", "GELU", "Tanh", "Sigmoid", "SiLU", "ELU", "CELU", "SELU", "Softplus", "Mish", "Hardtanh")
    backend = backends.named("a")
    for name in names:
        compile(getattr(torch.nn, name)(), backend=backend)(torch.ones(3))
    assert len(backends.compiled) == (11 if is_dynx(compile) else 8)


@BOTH
def test_rebinding_a_global_that_the_backend_reads_compiles_again(compile, backends, monkeypatch):
    # torch sees a new function object each time
    monkeypatch.setitem(globals(), "helper", backends.named("before"))
    compile(add, backend=_calls_helper())(torch.ones(3))
    monkeypatch.setitem(globals(), "helper", backends.named("after"))
    compile(add, backend=_calls_helper())(torch.ones(3))
    compile(add, backend=_calls_helper())(torch.ones(3))
    assert backends.compiled == (["before", "after"] if is_dynx(compile) else ["before", "after", "after"])


def _calls_helper():
    return lambda gm, inputs: helper(gm, inputs)  # noqa: F821 - set by the test


@pytest.mark.parametrize("cond_first", [True, False], ids=["cond first", "cond last"])
def test_function_that_is_also_a_torch_cond_branch_compiles_with_its_own_backend(backends, cond_first):
    """torch.cond compiles its branches with "eager"; torch added its BACKEND_MATCH check for this case."""

    def with_cond():
        return torch.cond(torch.tensor(data=True), add, torch.cos, (torch.ones(3),))

    f = dynx.compile(add, backend=backends.named("mine"))
    steps = [with_cond, lambda: f(torch.ones(3))]
    results = [step() for step in (steps if cond_first else steps[::-1])]
    assert backends.compiled == ["mine"]
    assert torch.equal(*results)


@BOTH
def test_eager_on_recompile_stance_does_not_run_code_of_another_backend(compile, backends):
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
@pytest.mark.filterwarnings("ignore:.* in addition to 'Backends:dynx.errors.DynxWarning")
def test_entries_of_a_force_backend_stance_do_not_count_towards_the_limit(compile, backends):
    """torch keeps the cache entries of a forced backend among the function's other entries after the stance ends."""
    f = compile(add, backend=backends.named("own"), dynamic=False)
    with torch.compiler.set_stance("default", force_backend="eager"):
        for size in range(1, 9):
            f(torch.ones(size))
    for size in range(11, 19):
        f(torch.ones(size))
    assert len(backends.compiled) == (8 if is_dynx(compile) else 0)


class Net(torch.nn.Module):
    def forward(self, x):
        return x + 1


def test_force_backend_stance_warns_when_it_compiles(backends):
    with torch.compiler.set_stance("default", force_backend=backends.named("forced")):
        f = dynx.compile(add, backend=backends.named("own"))  # compiles at the first call
    f(torch.ones(3))
    with torch.compiler.set_stance("default", force_backend=backends.named("forced")):
        f = dynx.compile(add, backend=backends.named("own"))
        with pytest.warns(DynxWarning, match="in addition to"):
            f(torch.ones(3))
    assert backends.compiled == ["own", "forced"]


FORCED = [(lambda: add, r".*test_compile.py:\d+ in add"), (Net, "Net"), (lambda: torch.nn.Sequential(Net()), "Sequential")]


@pytest.mark.parametrize(("create", "name"), FORCED, ids=["function", "module", "torch's module"])
def test_force_backend_stance_warns_once(create, name):
    """A stance ends with its `with` block, but its cache entries stay; torch does not warn about them."""
    f = dynx.compile(create(), backend="aot_eager")
    with torch.compiler.set_stance("default", force_backend="eager"):
        with pytest.warns(DynxWarning, match=f"{name} is compiled with backend 'eager' in addition to 'aot_eager'") as caught:
            f(torch.ones(3))
        f(torch.ones(3))  # a second warning would be an error
    assert len(caught) == 1
    f(torch.ones(3))


def test_recompile_reason_names_the_changed_backend_or_config(backends):
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
    fields = operator.attrgetter("kind", "source", "expected", "got")
    reasons = [[*map(fields, recompile.reasons)] for recompile in w.recompiles]
    setting = ("config", "torch._dynamo.config.capture_scalar_outputs", "False", "True")
    backend = ("backend", "backend", "partial(with_level, level=1)", "partial(with_level, level=2)")
    dynamic = ("config", "dynamic", "None", "True")
    assert reasons == [[setting], [setting], [backend], [backend], [dynamic], [dynamic]]  # the function, its resume function
    assert [reason.location.file for recompile in w.recompiles for reason in recompile.reasons] == [__file__] * 6


class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x):
        torch._dynamo.graph_break()
        return self.linear(x)


def test_dynx_compiled_module_is_an_optimized_module(backends):
    module = Layers()
    compiled = dynx.compile(module, backend=backends.named("a"))
    x = torch.ones(2, 3)
    assert type(compiled) is type(torch.compile(module))
    assert torch.equal(compiled(x), module(x))
    assert list(compiled.state_dict()) == list(torch.compile(module).state_dict())
    first = len(backends.compiled)
    with config.patch(capture_scalar_outputs=True):
        compiled(x), compiled(x)
    compiled(x)
    assert len(backends.compiled) == 2 * first


@BOTH
def test_get_compiler_config_and_deepcopy_work_as_in_torch(compile, backends):
    options = {"max_autotune": True}
    for compiled in (compile(add, options=options), compile(Layers(), options=options)):
        assert compiled.get_compiler_config()["max_autotune"] is True
    module = copy.deepcopy(compile(Layers(), backend=backends.named("a")))
    module(torch.ones(2, 3))
    assert backends.compiled


def test_decorator_with_arguments_compiles_and_keeps_name_and_docstring(backends):
    @dynx.compile(backend=backends.named("a"))
    def decorated(x, *, scale=2):
        """Scale."""
        return x * scale

    assert decorated(torch.ones(2), scale=3).tolist() == [3.0, 3.0]
    assert (decorated.__name__, decorated.__doc__) == ("decorated", "Scale.")
    assert backends.compiled == ["a"]


def test_call_of_a_dynx_compiled_function_in_compiled_code_is_inlined(backends):
    inner = dynx.compile(add, backend=backends.named("inner"))
    outer = torch.compile(lambda x: inner(x) * 2, backend=backends.named("outer"), fullgraph=True)
    assert torch.equal(outer(torch.ones(3)), add(torch.ones(3)) * 2)
    assert backends.compiled == ["outer"]


def test_methods_and_callable_objects_compile(backends):
    class Doubles:
        def __call__(self, x):
            return x * 2

        def method(self, x):
            return x * 3

    assert dynx.compile(Doubles(), backend=backends.named("object"))(torch.ones(1)).item() == 2
    assert dynx.compile(Doubles().method, backend=backends.named("method"))(torch.ones(1)).item() == 3
    assert backends.compiled == ["object", "method"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"fn": 3}, Exception),
        ({"backend": "no such backend"}, torch._dynamo.exc.InvalidBackend),
        ({"mode": "default", "options": {"max_autotune": True}}, RuntimeError),
        ({"no_such_keyword": 1}, TypeError),
    ],
)
def test_dynx_compile_raises_the_same_errors_as_torch_compile(arguments, error):
    keywords = {"fn": add, **arguments}
    fn = keywords.pop("fn")
    with pytest.raises(error) as expected:
        torch.compile(fn, **keywords)
    with pytest.raises(error) as actual:
        dynx.compile(fn, **keywords)
    assert (type(expected.value), str(expected.value)) == (type(actual.value), str(actual.value))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"key": []}, r"key=\[\] is not hashable: a list\n  pass a string, a number or a tuple of them"),
        ({"per_backend_limit": 0}, "per_backend_limit=0 is not a positive int"),
        ({"per_backend_limit": True}, "per_backend_limit=True is not a positive int"),
    ],
)
def test_invalid_key_and_per_backend_limit_arguments_raise(arguments, message):
    """Without the check they would fail at the first call, or nothing would ever be compiled."""
    with pytest.raises(UsageError, match=message):
        dynx.compile(add, **arguments)


def test_dynx_compile_does_not_mutate_the_options_dict(backends):
    options = {"guard_filter_fn": lambda guards: [True for _ in guards]}
    dynx.compile(add, backend=backends.named("a"), options=options)
    assert list(options) == ["guard_filter_fn"]


def test_compiler_reset_compiles_again_and_disable_returns_the_function(backends):
    f = dynx.compile(add, backend=backends.named("a"))
    f(torch.ones(3))
    torch.compiler.reset()
    f(torch.ones(3))
    assert backends.compiled == ["a", "a"]
    assert dynx.compile(add, backend=backends.named("off"), disable=True) is add


@BOTH
def test_compiled_callables_can_be_compiled_again(compile, backends):
    x = torch.ones(2, 3)
    for module in (torch.nn.Linear(3, 3), Layers()):
        compiled = compile(compile(module, backend="eager"), backend="eager")
        assert torch.equal(compiled(x), module(x))
    assert torch.equal(compile(torch.compile(add, backend="eager"), backend="eager")(x), add(x))


@BOTH
def test_modules_of_one_class_share_cache_entries(compile, backends):
    backend = backends.named("a")
    for _ in range(20):
        compile(torch.nn.ReLU(), backend=backend)(torch.ones(3))
    assert backends.compiled == ["a"]


def scaling(level):
    class Scales:
        def __init__(self):
            self.level = level

        def __call__(self, gm, inputs):
            level = self.level
            return lambda *args: [tensor * level for tensor in gm(*args)]

    return Scales


@BOTH
def test_code_of_a_backend_object_mutated_after_compiling_is_not_shared(compile, backends):
    Scales = scaling(1)
    changed, x = Scales(), torch.ones(1)
    compile(torch.neg, backend=changed)(x)
    changed.level = 2
    assert compile(torch.neg, backend=Scales())(x).item() == -1
    assert compile(torch.cos, backend=changed)(torch.zeros(1)).item() == 2
    assert compile(torch.cos, backend=Scales())(torch.zeros(1)).item() == 1


@BOTH
def test_code_of_a_backend_object_mutated_before_compiling_is_not_shared(compile, backends):
    Scales = scaling(1)
    changed = Scales()
    f = compile(torch.cos, backend=changed)
    changed.level = 2
    assert f(torch.zeros(1)).item() == 2
    changed.level = 1
    assert compile(torch.cos, backend=Scales())(torch.zeros(1)).item() == 1


@BOTH
def test_compiled_module_can_be_saved_and_loaded(compile, backends, tmp_path):
    x, module = torch.ones(2, 3), compile(torch.nn.Linear(3, 3), backend="eager")
    torch.save(module, tmp_path / "module.pt")
    loaded = torch.load(tmp_path / "module.pt", weights_only=False)
    assert type(loaded) is type(module)
    assert torch.equal(loaded(x), module(x))


@BOTH
def test_compiled_callables_modules_and_backends_are_garbage_collected(compile, backends):
    kept = compile(torch.nn.ReLU(), backend="eager")
    module = torch.nn.Linear(3, 3)
    compiled = compile(module, backend="eager")
    compiled(torch.ones(2, 3))
    backend = backends.named("mine")
    f = compile(add, backend=backend)
    f(torch.ones(3))
    references = [weakref.ref(value) for value in (module, backend, f)]
    del module, compiled, backend, f
    torch._dynamo.reset()
    gc.collect()
    assert [reference() for reference in references] == [None] * 3
    assert kept(torch.ones(1)).item() == 1


@BOTH
def test_dynamo_reset_calls_the_reset_method_of_a_backend_once(compile, backends):
    class Resets:
        def __call__(self, gm, inputs):
            return gm.forward

        def reset(self):
            backends.compiled.append("reset")

    f = compile(add, backend=Resets())
    f(torch.ones(3))
    torch._dynamo.reset()
    assert backends.compiled == ["reset"]


@pytest.mark.filterwarnings("ignore:.* in addition to 'Backends:dynx.errors.DynxWarning")
def test_force_backend_stance_accepts_an_unhashable_backend(backends):
    class Forced:
        __hash__ = None

        def __call__(self, gm, inputs):
            return gm.forward

    f = dynx.compile(add, backend=backends.named("own"))
    with torch.compiler.set_stance("default", force_backend=Forced()):
        assert torch.equal(f(torch.ones(3)), add(torch.ones(3)))


def test_dynx_compile_accepts_static_methods_and_the_model_keyword(backends):
    class Holder:
        @dynx.compile(backend="eager")
        @staticmethod
        def static(x):
            return x + 1

    assert Holder().static(torch.ones(1)).item() == Holder.static(torch.ones(1)).item() == 2
    assert torch.equal(dynx.compile(model=add, backend="eager")(torch.ones(3)), add(torch.ones(3)))
    with pytest.raises(TypeError, match="no_such_keyword"):
        dynx.compile(backend="eager", no_such_keyword=1)
