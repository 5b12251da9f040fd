"""`ctx.check`, `ctx.assume` and `ctx.constrain` on sizes and unbacked symints, and `ctx.guard_on`."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

import dynx
from dynx.comptime import comptime
from dynx.errors import CheckFailed, ComptimeFailed


@pytest.fixture(autouse=True)
def capture_scalar_outputs():
    torch._dynamo.config.capture_scalar_outputs = True


def compiled(f, graphs=None, **options):
    def backend(graph_module, example_inputs):
        if graphs is not None:
            graphs.append(graph_module)
        return graph_module.forward

    return torch.compile(f, backend=backend, fullgraph=True, **options)


def assertions(graph_module):
    return [str(node.args[1]) for node in graph_module.graph.nodes if "_assert_scalar" in str(node.target)]


def branch(t, x):
    u = (t + 0).item()
    if u > 4:
        return x + 1
    return x - 1


def test_without_ctx_check_torch_cannot_branch_on_an_unbacked_symint():
    with pytest.raises(torch._dynamo.exc.UserError, match=r"(?i)data-dependent"):
        compiled(branch)(torch.tensor(5), torch.ones(1))


def checked(t, x):
    u = (t + 0).item()
    comptime(lambda ctx: ctx.check(ctx.local("u") > 4, "u is large"))
    if u > 4:
        return x + 1
    return x - 1


def test_violated_ctx_check_raises_at_run_time_and_names_the_line_of_the_check():
    run = compiled(checked)
    assert run(torch.tensor(5), torch.ones(1)).item() == 2
    line = checked.__code__.co_firstlineno + 2
    with pytest.raises(RuntimeError, match=rf"u is large, promised at .*test_facts.py:{line} in checked"):
        run(torch.tensor(2), torch.ones(1))


def test_ctx_check_accepts_a_relation_between_two_unbacked_symints():
    def f(t, x):
        u, v = (t + 0).tolist()
        comptime(lambda ctx: ctx.check(ctx.local("u").value + ctx.local("v").value == 6))
        return x + 1 if u + v == 6 else x

    run = compiled(f)
    assert run(torch.tensor([2, 4]), torch.ones(1)).item() == 2
    with pytest.raises(RuntimeError, match=r"promised at .*test_facts.py"):
        run(torch.tensor([2, 5]), torch.ones(1))


def test_ctx_check_on_a_size_becomes_a_guard():
    def f(x):
        comptime(lambda ctx: ctx.check(ctx.local("x").size(0) >= 3))
        return x + 1

    run = compiled(f, dynamic=True)
    with dynx.watch() as w:
        run(torch.ones(4))
        run(torch.ones(5))
    assert len(w.compiles) == 1
    with pytest.raises(CheckFailed, match=r"is false: .*\n  checked at .*test_facts.py:\d+"):
        run(torch.ones(2))


def test_ctx_check_that_is_false_while_tracing_fails_the_compilation():
    def f(x):
        comptime(lambda ctx: ctx.check(ctx.local("x").size(0) == 7, "seven rows"))
        return x

    with pytest.raises(CheckFailed, match=r"the condition of ctx.check or ctx.constrain is false: seven rows"):
        compiled(f)(torch.ones(2))


def test_ctx_check_of_a_tensor_raises():
    def f(x):
        comptime(lambda ctx: ctx.check(ctx.local("x")))
        return x

    with pytest.raises(dynx.errors.ComptimeFailed, match=r"expected a condition on numbers, not Tensor\(float32"):
        compiled(f)(torch.ones(2))


def test_ctx_assume_adds_no_assertion_and_is_unsound():
    def f(t, x):
        u = (t + 0).item()
        comptime(lambda ctx: ctx.assume(ctx.local("u") > 4))
        return x + 1 if u > 4 else x - 1

    graphs = []
    run = compiled(f, graphs)
    assert run(torch.tensor(5), torch.ones(1)).item() == 2
    assert assertions(graphs[0]) == []
    assert run(torch.tensor(2), torch.ones(1)).item() == 2, "unsound, as documented: eager would give 0"


def test_ctx_assume_accepts_a_relation_between_two_unbacked_symints():
    def f(t, x):
        u, v = (t + 0).tolist()
        comptime(lambda ctx: ctx.assume(ctx.local("u").value + ctx.local("v").value == 6))
        return x + 1 if u + v == 6 else x

    assert compiled(f)(torch.tensor([2, 4]), torch.ones(1)).item() == 2


def test_ctx_constrain_asserts_bounds_of_an_unbacked_symint():
    def f(t, x):
        u = (t + 0).item()
        comptime(lambda ctx: ctx.constrain(ctx.local("u"), min=5, max=10))
        return x + 1 if u > 4 else x - 1

    run = compiled(f)
    assert run(torch.tensor(5), torch.ones(1)).item() == 2
    with pytest.raises(RuntimeError, match=r"5 <= u0 <= 10, promised at .*test_facts.py"):
        run(torch.tensor(2), torch.ones(1))
    with pytest.raises(RuntimeError, match=r"5 <= u0 <= 10, promised at .*test_facts.py"):
        run(torch.tensor(11), torch.ones(1))


def test_ctx_constrain_checks_bounds_of_a_size():
    def f(x):
        comptime(lambda ctx: ctx.constrain(ctx.local("x").size(0), min=2, max=6))
        return x + 1

    run = compiled(f, dynamic=True)
    run(torch.ones(4))
    with pytest.raises(CheckFailed, match=r"is false: .* <= 6"):
        run(torch.ones(9))


TEMPERATURE = 0.5


def test_recompile_reason_of_a_ctx_guard_on_guard_has_its_name_and_old_and_new_value(monkeypatch):
    def f(x):
        comptime(lambda ctx: ctx.guard_on(lambda: TEMPERATURE, name="temperature"))
        return x * 2

    run = compiled(f)
    with dynx.watch() as w:
        run(torch.ones(1))
        run(torch.ones(1))
        monkeypatch.setitem(globals(), "TEMPERATURE", 0.7)
        run(torch.ones(1))
        run(torch.ones(1))
    (recompile,) = w.recompiles
    (reason,) = recompile.reasons
    assert (reason.kind, reason.source, reason.expected, reason.got) == ("custom", "temperature", "0.5", "0.7")
    assert reason.location.line == f.__code__.co_firstlineno + 1


def test_ctx_guard_on_adds_a_guard_to_the_guard_tree():
    def f(x):
        comptime(lambda ctx: ctx.guard_on(lambda: TEMPERATURE, name="temperature"))
        return x * 2

    run = compiled(f)
    run(torch.ones(1))
    (entry,) = torch._dynamo.eval_frame._debug_get_cache_entry_list(f.__code__)
    assert "___dynx_guard('temperature') == 0.5" in str(entry.guard_manager)


def test_ctx_check_applies_again_after_dynamo_restarts_the_analysis():
    def f(t, x):
        u = (t + 0).item()
        comptime(lambda ctx: ctx.check(ctx.local("u") > 4))
        y = x + 1 if u > 4 else x - 1
        torch._dynamo.graph_break()
        return y * 2

    assert torch.compile(f, backend="eager")(torch.tensor(5), torch.ones(1)).item() == 4


def test_ctx_guard_on_detects_a_list_mutated_in_place():
    items = [1]

    def f(x):
        comptime(lambda ctx: ctx.guard_on(lambda: items, name="items") and None)
        return x + 1

    run = compiled(f)
    with dynx.watch() as w:
        run(torch.ones(1))
        items.append(2)
        run(torch.ones(1))
    assert len(w.recompiles) == 1


@pytest.mark.parametrize("read", [lambda: math.nan, object, lambda: torch.ones(3)], ids=["nan", "object", "tensor"])
def test_ctx_guard_on_refuses_values_that_do_not_equal_their_copy(read):
    """A guard on them would fail in the call that made it, which torch takes for a bug of its own."""

    def f(x):
        comptime(lambda ctx: ctx.guard_on(read, name="value") and None)
        return x + 1

    with pytest.raises(ComptimeFailed, match=r"guard_on\('value'\): the value of fn\(\), .*, does not equal its copy"):
        compiled(f)(torch.ones(1))


def test_ctx_guard_on_refuses_functions_that_return_another_value_in_each_call():
    numbers = itertools.count()

    def f(x):
        comptime(lambda ctx: ctx.guard_on(lambda: next(numbers), name="number"))
        return x + 1

    with pytest.raises(ComptimeFailed, match=r"guard_on\('number'\): fn\(\) returned two different values"):
        compiled(f)(torch.ones(1))


def test_each_violated_ctx_check_raises_its_own_message():
    def f(t, x):
        n = (t + 0).item()
        torch._check(n < 50)
        comptime(lambda ctx: ctx.check(ctx.local("n") > 4, "large"))
        comptime(lambda ctx: ctx.check(ctx.local("n") < 20, "small"))
        comptime(lambda ctx: ctx.check(ctx.local("n") != 7, "not seven"))
        return x + 1 if n > 4 else x

    run = compiled(f)
    run(torch.tensor(5), torch.ones(1))
    for value, text in ((3, "large"), (30, "small"), (7, "not seven")):
        with pytest.raises(RuntimeError, match=text):
            run(torch.tensor(value), torch.ones(1))
