"""Arithmetic and comparisons of `ComptimeVar`s: facts about sums and multiples, which nothing evaluates silently."""

from __future__ import annotations

import gc
import itertools
import operator
import weakref

import numpy
import pytest
import torch

import dynx
from dynx.comptime import comptime, probe
from dynx.errors import CheckFailed, ComptimeFailed, NotConstant


@pytest.fixture(autouse=True)
def capture_scalar_outputs():
    torch._dynamo.config.capture_scalar_outputs = True


def compiled(f, **options):
    return torch.compile(f, backend="eager", fullgraph=True, **options)


def seen(read, *args, **options):
    """Return what a callback reads while a function of unbacked u and v, the int n and the tensors x and t is traced."""
    torch._dynamo.reset()
    found = []

    def f(numbers, x, n, t):
        u, v = numbers.tolist()
        comptime(lambda ctx: found.append(read(ctx)))
        return x + u + v + n + t

    compiled(f, **options)(*args or (torch.tensor([2, 4]), torch.ones(3), 3, torch.ones(1)))
    return found[0]


def test_ctx_check_accepts_that_an_unbacked_symint_is_even():
    """Divisibility is the commonest fact about sizes: reshapes and kernels depend on it."""

    def f(t, x):
        u = (t + 0).item()
        comptime(lambda ctx: ctx.check(ctx.local("u") % 2 == 0))
        return x + 1 if u % 2 == 0 else x - 1

    run = compiled(f)
    assert run(torch.tensor(4), torch.ones(1)).item() == 2
    with pytest.raises(RuntimeError, match=r"u0 % 2 == 0, promised at .*test_arithmetic.py:\d+"):
        run(torch.tensor(5), torch.ones(1))


def test_ctx_check_accepts_that_unbacked_symints_add_up_to_a_size():
    """`torch.split` with sizes from data needs this fact."""

    def f(t, x):
        u, v = t.tolist()
        comptime(lambda ctx: ctx.check(ctx.local("u") + ctx.local("v") == ctx.local("x").size(0)))
        return x + 1 if u + v == x.size(0) else x - 1

    run = compiled(f)
    assert run(torch.tensor([2, 4]), torch.ones(6)).tolist() == [2] * 6
    with pytest.raises(RuntimeError, match=r"u0 \+ u1 == 6, promised at"):
        run(torch.tensor([2, 5]), torch.ones(6))


@pytest.mark.parametrize("promise", ["check", "assume"])
def test_a_number_stays_even_when_it_is_known_to_be_positive(promise):
    """torch has two kinds of remainders, and forgets a fact about the one when a bound makes it use the other."""

    def f(t, x):
        u = (t + 0).item()
        comptime(lambda ctx: getattr(ctx, promise)(ctx.local("u") % 2 == 0))
        comptime(lambda ctx: getattr(ctx, promise)(ctx.local("u") % 3 == 1))
        comptime(lambda ctx: getattr(ctx, promise)(ctx.local("u") > 0))
        return x + 1 if u % 2 == 0 and u % 3 == 1 else x - 1

    assert compiled(f)(torch.tensor(4), torch.ones(1)).item() == 2


def test_ctx_assume_accepts_arithmetic():
    def f(t, x):
        u = (t + 0).item()
        comptime(lambda ctx: ctx.assume((2 * ctx.local("u") - 1 == 7) & (ctx.local("u") % 4 == 0)))
        return x + 1 if 2 * u - 1 == 7 and u % 4 == 0 else x - 1

    assert compiled(f)(torch.tensor(4), torch.ones(1)).item() == 2


def test_ctx_check_of_arithmetic_on_sizes_becomes_a_guard():
    def f(x, n):
        comptime(lambda ctx: ctx.check(ctx.local("x").size(0) == ctx.local("n") * 2))
        return x.sum() + n

    run = compiled(f, dynamic=True)
    with dynx.watch() as w:
        run(torch.ones(8), 4)
        run(torch.ones(12), 6)
    assert len(w.compiles) == 1
    with pytest.raises(CheckFailed, match=r"is false: \w+ \* 2 == \w+ \(\w+=[49], \w+=[49]\)"):
        run(torch.ones(9), 4)


def test_ctx_constrain_bounds_a_sum_of_unbacked_symints():
    def f(t, x):
        u, v = t.tolist()
        comptime(lambda ctx: ctx.constrain(ctx.local("u") + ctx.local("v"), min=3, max=9))
        return x + 1 if u + v >= 3 else x - 1

    run = compiled(f)
    assert run(torch.tensor([2, 4]), torch.ones(1)).item() == 2
    for numbers in ([1, 1], [5, 5]):
        with pytest.raises(RuntimeError, match=r"3 <= u0 \+ u1 <= 9, promised at"):
            run(torch.tensor(numbers), torch.ones(1))


@pytest.mark.parametrize("op", ["+", "-", "*", "/", "//", "%", "**", "<", "<=", ">", ">=", "==", "!="])
def test_operators_of_comptime_vars_are_those_of_the_numbers(op):
    """`u` is unbacked, `n` a dynamic argument, `a` a constant, `r` a size as torch returns it; each on both sides."""
    compared = {}

    def f(t, x, n):
        u, a = (t + 0).item(), 3
        torch._check(u > 0)
        torch._check(n > 0)

        def look(ctx):
            ours = {name: ctx.local(name) for name in "una"} | {"r": ctx.local("x").size(0), "7": 7, "2.5": 2.5}
            theirs = {name: getattr(value, "value", value) for name, value in ours.items()}
            for left, right in itertools.product(ours, ours):
                of_vars = eval("left % right".replace("%", op), {"left": ours[left], "right": ours[right]})
                of_numbers = eval("left % right".replace("%", op), {"left": theirs[left], "right": theirs[right]})
                of_vars = getattr(of_vars, "value", of_vars)
                mirrored = str(getattr(getattr(of_numbers, "node", None) and of_numbers.node.expr, "reversed", None))
                compared[left, right] = str(of_vars) in (str(of_numbers), mirrored) or (left == right and op in ("==", "!="))

        comptime(look)
        return x + u + n + a

    compiled(f, dynamic=True)(torch.tensor(5), torch.ones(4), 6)
    assert len(compared) == 36
    assert [pair for pair, is_same in compared.items() if not is_same] == []


def test_unary_operators_and_combined_conditions():
    assert seen(lambda ctx: str((-ctx.local("u")).value)) == "-u0"
    assert seen(lambda ctx: str(abs(ctx.local("u")).value)) == "Abs(u0)"
    assert seen(lambda ctx: str((~(ctx.local("u") > 3)).value)) == "u0 <= 3"
    both = seen(lambda ctx: str(((ctx.local("u") > 3) & (ctx.local("v") > 3)).value))
    assert both == "(u0 > 3) & (u1 > 3)"
    assert "|" in seen(lambda ctx: str(((ctx.local("u") > 3) | (ctx.local("v") > 3)).value))


def test_combined_conditions_can_be_checked():
    """torch makes no use of the parts of a conjunction: after `torch._check(a & b)` it cannot decide `a`."""

    def f(t, x):
        u = (t + 0).item()
        comptime(lambda ctx: ctx.check((ctx.local("u") > 3) & (ctx.local("u") % 4 == 0), "a multiple of four"))
        return x + u if u % 4 == 0 and u > 2 else x - u

    run = compiled(f)
    run(torch.tensor(8), torch.ones(1))
    for wrong in (6, 0):
        with pytest.raises(RuntimeError, match="a multiple of four"):
            run(torch.tensor(wrong), torch.ones(1))


def test_arithmetic_of_constants_returns_python_values():
    def f(x):
        a, name = 3, "row"
        comptime(
            lambda ctx: results.append((ctx.local("a") * 2, 7 % ctx.local("a"), ctx.local("a") > 2, ctx.local("name") + "s"))
        )
        return x * a, name

    results = []
    compiled(f)(torch.ones(1))
    assert results == [(6, 1, True, "rows")]
    assert type(results[0][0]) is int


def test_numpy_numbers_are_operands_on_both_sides():
    assert seen(lambda ctx: str((numpy.int64(3) * ctx.local("u")).value)) == "3*u0"
    assert seen(lambda ctx: str((ctx.local("u") + numpy.int64(3)).value)) == "u0 + 3"


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda ctx: bool(ctx.local("u") > 4), r"u0 > 4 is not evaluated while tracing"),
        (lambda ctx: 2 < ctx.local("u") < 9, r"u0 > 2 is not evaluated while tracing"),
        (lambda ctx: 1 if ctx.local("u") % 2 == 0 else 0, r"u0 % 2 == 0 is not evaluated"),
        (lambda ctx: not ctx.local("u"), r"u0 is not evaluated"),
        (lambda ctx: ctx.local("u") in (1, 2), r"u0 == 1 is not evaluated"),
        (lambda ctx: max(ctx.local("u"), 3), r"3 > u0 is not evaluated|u0 < 3 is not evaluated"),
        (lambda ctx: int(ctx.local("u") + 1), r"u0 \+ 1 is not evaluated"),
        (lambda ctx: range(ctx.local("u")), r"u0 is not evaluated"),
        (lambda ctx: float(ctx.local("u")), r"u0 is not evaluated"),
    ],
    ids=["bool", "chain", "if", "not", "in", "max", "int", "range", "float"],
)
def test_a_number_known_only_at_run_time_has_no_truth_value(use, text):
    with pytest.raises(NotConstant, match=text) as caught:
        seen(use)
    assert "test_arithmetic.py" in str(caught.value), "where"
    assert "ctx.check" in str(caught.value), "the next step"


def test_comparisons_of_dynamic_sizes_never_guard_silently():
    """`if n > 4` in a callback looks like an observation, but as a bool torch guards on it."""

    def f(x, n):
        comptime(lambda ctx: ctx.log(large=ctx.local("n") > 4, twice=2 * ctx.local("n")))
        return x + n

    def decided(x, n):
        comptime(lambda ctx: ctx.log(large=bool(ctx.local("n") > 4)))
        return x + n

    run = compiled(f, dynamic=True)
    with dynx.watch() as w:
        for n in (3, 5, 7):
            run(torch.ones(1), n)
    assert len(w.compiles) == 1
    assert w.logs[0].values["large"].endswith("> 4")
    with pytest.raises(NotConstant, match=r"> 4 is not evaluated while tracing") as caught:
        compiled(decided, dynamic=True)(torch.ones(1), 3)
    assert "bool((...).value) evaluates it and adds a guard" in str(caught.value)


def test_following_the_error_evaluates_with_a_guard():
    def f(x, n):
        comptime(lambda ctx: ctx.log(large=bool((ctx.local("n") > 4).value)))
        return x + n

    run = compiled(f, dynamic=True)
    with dynx.watch() as w:
        run(torch.ones(1), 3)
        run(torch.ones(1), 5)
    assert len(w.compiles) == 2
    assert [log.values["large"] for log in w.logs] == ["False", "True"]


def test_a_fact_that_is_known_already_has_a_truth_value():
    """No guard is needed for it: an earlier check implies it."""

    def f(t, x):
        u = (t + 0).item()
        comptime(lambda ctx: ctx.check(ctx.local("u") > 4))
        comptime(lambda ctx: results.append((bool(ctx.local("u") > 3), bool(ctx.local("u") < 2), bool(ctx.local("u")))))
        return x + u

    results = []
    compiled(f)(torch.tensor(5), torch.ones(1))
    assert results == [(True, False, True)]


@pytest.mark.parametrize(
    "use",
    [
        lambda ctx: ctx.local("t") + 1,
        lambda ctx: 1 - ctx.local("t"),
        lambda ctx: ctx.local("u") * ctx.local("t"),
        lambda ctx: ctx.local("u") < ctx.local("t"),
        lambda ctx: ctx.local("t") > 0,
        lambda ctx: ctx.local("u") % ctx.local("t").as_fake(),
        lambda ctx: -ctx.local("t"),
    ],
)
def test_arithmetic_with_a_tensor_raises_an_error_that_names_it(use):
    with pytest.raises(ComptimeFailed, match=r"Tensor\(float32, \[1\]\) is not a number") as caught:
        seen(use)
    assert "test_arithmetic.py" in str(caught.value)


@pytest.mark.parametrize("other", ["text", None, [1], object()], ids=["str", "None", "list", "object"])
def test_arithmetic_with_other_values_raises_an_error(other):
    with pytest.raises(ComptimeFailed, match=r"is not a number"):
        seen(lambda ctx: ctx.local("u") + other)
    with pytest.raises(ComptimeFailed, match=r"is not a number"):
        seen(lambda ctx: ctx.local("u") < other)
    assert seen(lambda ctx: ctx.local("u") == other) is False
    assert seen(lambda ctx: ctx.local("u") != other) is True


def test_a_power_whose_sign_of_the_exponent_is_unknown_raises():
    """torch would guard on the sign, since it decides the type of the result."""
    with pytest.raises(ComptimeFailed, match=r"2 \*\* u0 .*negative.*\n.*\n.*ctx.check"):
        seen(lambda ctx: 2 ** ctx.local("u"))
    with pytest.raises(ComptimeFailed, match=r"negative"):
        seen(lambda ctx: ctx.local("n") ** ctx.local("n"), dynamic=True)

    def f(t, x):
        u = (t + 0).item()
        comptime(lambda ctx: ctx.check(ctx.local("u") >= 0))
        comptime(lambda ctx: ctx.check(2 ** ctx.local("u") < 100))
        return x + u

    run = compiled(f)
    run(torch.tensor(6), torch.ones(1))
    with pytest.raises(RuntimeError, match=r"2 \*\* u0 < 100, promised"):
        run(torch.tensor(7), torch.ones(1))


def test_ctx_check_of_a_quotient_that_torch_cannot_assert_raises():
    """torch fails with a TraceError of its own, which names no line."""
    with pytest.raises(ComptimeFailed, match=r"cannot compute u0 / u1 > 1.5 .*\n  at .*test_arithmetic.py:\d+.*\n  use "):
        seen(lambda ctx: ctx.check(ctx.local("u") / ctx.local("v") > 1.5))
    assert seen(lambda ctx: ctx.check(ctx.local("n") / 2 > 1), dynamic=True) is None, "a guard needs no graph"


@pytest.mark.parametrize(
    "use",
    [
        lambda u, v: (u > 1) + (v > 1) >= 1,
        lambda u, v: (u > 1) == True,  # noqa: E712
        lambda u, v: -(u > 1),
        lambda u, v: (u > 1) & v,
        lambda u, v: abs(u > v),
        lambda u, v: (u > 1) < (v > 1),
    ],
)
def test_a_condition_is_no_number(use):
    """torch would guard on it, to make it 0 or 1."""
    with pytest.raises(
        NotConstant, match=r"to the condition u0 > \w+: .*\n  at .*test_arithmetic.py.*\n  combine conditions with &"
    ):
        seen(lambda ctx: use(ctx.local("u"), ctx.local("v")))


def test_texts_of_facts_have_the_parentheses_of_python():
    def texts(ctx):
        u, v = ctx.local("u"), ctx.local("v")
        facts = [(u + v) * 2 == 8, u - (v - 1) > 0, -(u + 1) < v, u**2 % 3 == 0, 2 * u // v != 1, 7 - u >= 0, ~(u > v)]
        return list(map(repr, facts))

    assert seen(texts) == [
        "(u0 + u1) * 2 == 8",
        "u0 - (u1 - 1) > 0",
        "-(u0 + 1) < u1",
        "u0 ** 2 % 3 == 0",
        "2 * u0 // u1 != 1",
        "7 - u0 >= 0",
        "~(u0 > u1)",
    ]


def test_facts_end_with_their_callback_and_keep_nothing_of_torch_alive():
    kept, alive = [], []

    def f(t, x):
        u = (t + 0).item()

        def look(ctx):
            kept.extend([ctx.local("u") + 1, ctx.local("u") > 1])
            alive.extend(weakref.ref(fact.value) for fact in kept)

        comptime(look)
        comptime(lambda ctx: kept.append(u))
        return x + u

    compiled(f)(torch.tensor(5), torch.ones(1))
    gc.collect()
    assert [ref() for ref in alive] == [None, None]
    assert repr(kept[1]) == "u0 > 1"
    for use in (lambda: kept[1].value, lambda: kept[0] + 1, lambda: bool(kept[1]), lambda: kept[2] > 1):
        with pytest.raises(ComptimeFailed, match=r"after its callback has ended"):
            use()


def test_a_fact_that_a_callback_returns_is_a_value_of_the_program():
    def f(x, n):
        if comptime(lambda ctx: ctx.local("n") * 2 > 8):
            return x + n
        return x - n

    run = compiled(f, dynamic=True)
    assert [run(torch.ones(1), n).item() for n in (3, 5)] == [-2, 6]


def test_probe_conditions_raise_where_they_would_guard():
    def f(x, n):
        y = x + n
        return y * 2

    with (
        probe(f, when=lambda ctx: ctx.local("n") > 4, do=lambda ctx: None),
        pytest.raises(NotConstant, match="is not evaluated while tracing"),
    ):
        compiled(f, dynamic=True)(torch.ones(1), 3)


def test_arithmetic_adds_no_nodes_and_no_guards():
    """Else a callback that only logs `2 * n` would change the program."""
    nodes = []

    def backend(gm, inputs):
        nodes.append([str(node.target) for node in gm.graph.nodes])
        return gm.forward

    def f(x, n):
        def look(ctx):
            n, size = ctx.local("n"), ctx.local("x").size(0)
            for op in (operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod):
                ctx.log(facts=[op(n, 3) == 4, op(7, n) < size, op(n, size) != 1, op(size, n) >= 0])

        comptime(look)
        return x + n

    with dynx.watch() as w:
        run = torch.compile(f, backend=backend, fullgraph=True, dynamic=True)
        for n in (3, 5, 40):
            run(torch.ones(n), n)
    assert len(w.compiles) == 1
    assert not [target for target in nodes[0] if "mod" in target or "mul" in target or "div" in target]
