"""`dynx.comptime.comptime` compared with torch's comptime: it does the same, and also what torch's silently fails to do."""

from __future__ import annotations

import contextlib
import functools
import gc
import weakref

import pytest
import torch
import torch._dynamo.comptime as torch_comptime
from fingerprint import fingerprint

import dynx
from dynx.comptime import ComptimeContext, ComptimeVar, comptime
from dynx.errors import ComptimeFailed, DynxWarning, UsageError


def compiled(f, **options):
    return torch.compile(f, backend="eager", **options)


@pytest.mark.parametrize(
    ("ours", "upstream"),
    [
        (comptime, torch_comptime.comptime),
        (ComptimeContext, torch_comptime.ComptimeContext),
        (ComptimeVar, torch_comptime.ComptimeVar),
    ],
)
def test_comptime_has_every_attribute_of_torchs_comptime(ours, upstream):
    assert {name for name in dir(upstream) if not name.startswith("__") and "__" not in name} - set(dir(ours)) == set()


def test_comptime_callback_with_a_closure_runs():
    """torch's comptime never runs a callback with a closure, and does not report it."""
    ran = []

    def f(x, comptime):
        name = "x"
        comptime(lambda ctx: ran.append(name))
        return x + 1

    compiled(f)(torch.ones(2), torch_comptime.comptime)
    assert ran == []
    torch._dynamo.reset()  # neither comptime object is guarded on
    compiled(f, fullgraph=True)(torch.ones(2), comptime)
    assert ran == ["x"]


def test_traced_code_can_use_the_return_value_of_a_comptime_callback():
    """A call of torch's comptime always returns None."""

    def f(x, comptime):
        if comptime(lambda ctx: ctx.get_local("x").size(0) == 2):
            return x + 1
        return x - 1

    assert compiled(f)(torch.zeros(2), torch_comptime.comptime).tolist() == [-1, -1]
    torch._dynamo.reset()
    assert compiled(f, fullgraph=True)(torch.zeros(2), comptime).tolist() == [1, 1]
    assert compiled(f, fullgraph=True)(torch.zeros(3), comptime).tolist() == [-1, -1, -1]


def test_comptime_outside_of_tracing_runs_only_the_fallback():
    assert comptime(lambda ctx: 1) is None
    assert comptime(lambda ctx: 1, lambda: "eager") == "eager"
    assert comptime(lambda ctx: 1, fallback_fn=lambda: "eager") == "eager"

    @comptime
    def nothing(ctx):
        raise AssertionError("nothing is compiled")


def test_comptime_callback_may_return_a_comptime_var():
    def f(x, y):
        z = comptime(lambda ctx: ctx.local("y") if ctx.local("x").size(0) == 2 else ctx.local("x"))
        return z * 2 + (x - x) + (y - y)

    run = compiled(f, fullgraph=True)
    assert run(torch.ones(2), torch.full((2,), 3.0)).tolist() == [6, 6]


def test_comptime_callback_that_returns_an_unsupported_object_raises():
    def f(x):
        return comptime(lambda ctx: object()) or x

    with pytest.raises(ComptimeFailed, match=r"returned <class 'object'>.*\n.*test_comptime.py:\d+ in .*f\n.*return a number"):
        compiled(f)(torch.ones(2))


def test_closure_variables_of_a_comptime_callback_are_guarded_if_its_result_is_used():
    def f(x, factor):
        return x * comptime(lambda ctx: factor + 1)

    run = compiled(f)
    assert [run(torch.ones(1), n).item() for n in (1, 5, 1)] == [2, 6, 2]


def test_list_items_read_by_a_comptime_callback_are_guarded_if_its_result_is_used():
    factors = [2]

    def f(x):
        closed_over = factors
        return x * comptime(lambda ctx: closed_over[0])

    run = compiled(f)
    before = run(torch.ones(1)).item()
    factors[0] = 7
    assert (before, run(torch.ones(1)).item()) == (2, 7)


def test_closure_variables_of_a_comptime_callback_are_guarded_if_they_decide_a_graph_break(count_compiles):
    def f(x, action):
        y = x + 1
        comptime(lambda ctx: ctx.graph_break() if action == "break" else None)
        return y + 1

    run = torch.compile(f, backend=count_compiles)
    graphs = []
    for action in ("break", "continue", "break"):
        before = count_compiles.count
        assert run(torch.ones(1), action).item() == 3
        graphs.append(count_compiles.count - before)
    assert graphs == [2, 1, 0]


def test_closure_variables_that_a_comptime_callback_only_logs_are_not_guarded():
    def f(x, step):
        comptime(lambda ctx: ctx.log(step=step))
        return x + 1

    run = compiled(f)
    with dynx.watch() as w:
        for step in ("a", "b", "c"):
            run(torch.ones(1), step)
    assert len(w.compiles) == 1
    assert [event.values for event in w.logs] == [{"step": "a"}]


def test_comptime_callback_that_assigns_to_a_closure_variable_warns():
    def f(x):
        n = 1

        def callback(ctx):
            nonlocal n
            n = 5

        comptime(callback)
        return x * n

    with pytest.warns(DynxWarning, match="assigns to n, but the traced code does not see the new value"):
        assert compiled(f)(torch.ones(1)).item() == 1


def test_comptime_callback_bound_to_an_object_created_in_traced_code_raises():
    class Callback:
        def method(self, ctx):
            pass

    def f(x):
        comptime(Callback().method)
        return x

    with pytest.raises(ComptimeFailed, match=r"(?s)the object|does not exist yet"):
        compiled(f)(torch.ones(1))


def test_exception_in_a_comptime_callback_is_reported_with_its_location():
    def f(x):
        comptime(lambda ctx: 1 / 0)
        return x

    with pytest.raises(ComptimeFailed) as caught:
        compiled(f)(torch.ones(1))
    text = str(caught.value)
    assert "raised ZeroDivisionError: division by zero\n  at " in text
    assert 'pass on_error="warn" to get a warning' in text
    assert "InternalTorchDynamoError" not in text


def test_comptime_on_error_warns_or_records_and_the_compilation_continues():
    def f(x, on_error):
        y = comptime(lambda ctx: 1 / 0, on_error=on_error)
        return x + 1 if y is None else x

    with pytest.warns(DynxWarning, match="ZeroDivisionError"):
        assert compiled(f)(torch.ones(1), "warn").item() == 2
    with dynx.watch() as w:
        assert compiled(f)(torch.ones(1), "record").item() == 2
    (trouble,) = w.troubles
    assert "ZeroDivisionError" in trouble.why


def test_comptime_with_invalid_arguments_raises():
    with pytest.raises(UsageError, match="got 3 positional arguments"):
        compiled(lambda x: comptime(len, len, len) or x)(torch.ones(1))
    with pytest.raises(UsageError, match=r"on_error is 'ignore'\n  valid choices: raise, warn, record\n  at .*test_comptime"):
        compiled(lambda x: comptime(len, on_error="ignore") or x)(torch.ones(1))
    with pytest.raises(UsageError, match="on_error is 'ignore'\n  valid choices: raise, warn, record"):
        comptime(len, on_error="ignore")
    with pytest.raises(ComptimeFailed, match="needs a function, not 3"):
        compiled(lambda x: comptime(3) or x)(torch.ones(1))


def test_comptime_context_raises_if_used_after_its_callback_returned():
    kept = []

    def f(x):
        comptime(lambda ctx: kept.extend([ctx, ctx.local("x")]))
        return x + 1

    compiled(f)(torch.ones(2))
    context, variable = kept
    assert repr(variable) == "Tensor(float32, [2])"
    with pytest.raises(ComptimeFailed, match="after its callback has ended"):
        context.locals()
    with pytest.raises(ComptimeFailed, match="after its callback has ended"):
        variable.as_fake()


def test_comptime_callbacks_keep_no_fake_tensor_or_instruction_translator_alive():
    alive = []

    def f(x):
        y = x + 1
        comptime(lambda ctx: alive.append(weakref.ref(ctx.local("y").as_fake())))
        comptime(lambda ctx: alive.append(weakref.ref(ctx._i_will_not_complain_if_bc_breaks_InstructionTranslator())))
        return y

    compiled(f)(torch.ones(2))
    torch._dynamo.reset()
    gc.collect()
    assert len(alive) == 2
    assert [ref() for ref in alive] == [None, None]


def test_comptime_callback_that_reads_realized_variables_adds_no_guards():
    """Only the callback itself is guarded in addition."""

    def guards_of(f):
        _, _, (guards,) = fingerprint(f, (torch.ones(2), 3), contextlib.nullcontext())
        return [line.partition("#")[0].strip() for line in guards if "L['" in line]

    def plain(x, n):
        y = x + n
        return y * 2

    def with_callback(x, n):
        y = x + n
        comptime(lambda ctx: ctx.log(y=ctx.local("y")))
        return y * 2

    assert guards_of(plain)
    assert guards_of(with_callback) == guards_of(plain)


def test_comptime_callback_may_be_a_partial_created_in_traced_code():
    def log_text(prefix, ctx, *, suffix):
        ctx.log(text=prefix + suffix)

    def f(x):
        comptime(functools.partial(log_text, "a", suffix="b"))
        return x + 1

    with dynx.watch() as w:
        compiled(f, fullgraph=True)(torch.ones(1))
    assert w.logs[0].values == {"text": "ab"}


def test_comptime_callback_sees_mutations_made_by_traced_code():
    """The real objects are not mutated while Dynamo traces: compiled code applies the mutations at run time."""

    class Box:
        n = 0

    box = Box()
    box.inner = Box()

    def f(x, rows):
        rows[0].append(2)
        return x + comptime(lambda ctx: len(rows[0]))

    assert compiled(f)(torch.zeros(1), [[1]]).item() == 2

    def g(x, box):
        box.inner.n = 5
        return x + comptime(lambda ctx: box.inner.n)

    with pytest.raises(ComptimeFailed, match="has no attribute 'inner'"):
        compiled(g)(torch.zeros(1), box)


def test_comptime_callback_cannot_mutate_a_list_created_in_traced_code():
    """The traced code would not see the mutation."""

    def f(x):
        items = [x, 1]
        comptime(lambda ctx: items.append(2))
        return x + len(items)

    with pytest.raises(ComptimeFailed, match="'tuple' object has no attribute 'append'"):
        compiled(f)(torch.zeros(1))

    def g(x):
        items = [x, 1]
        return x + comptime(lambda ctx: len(items))

    assert compiled(g)(torch.zeros(1)).item() == 2


def test_comptime_callback_may_return_a_tuple():
    def f(x):
        rows, y = comptime(lambda ctx: (ctx.local("x").size(0), ctx.local("x")))
        return y * rows + 0 * x

    run = compiled(f, dynamic=True)
    assert run(torch.ones(3)).tolist() == [3, 3, 3]
    assert run(torch.ones(2)).tolist() == [2, 2]


def test_comptime_print_graph_writes_to_a_file_immediately(tmp_path):
    """The callback may read or close the file right after printing."""
    texts = []

    def callback(ctx):
        with open(tmp_path / "graph.txt", "w") as file:
            ctx.print_graph(file=file)
        texts.append((tmp_path / "graph.txt").read_text())

    def f(x):
        y = x + 1
        comptime(callback)
        return y

    compiled(f)(torch.ones(1))
    assert "def forward(self" in texts[0]


def test_as_python_constant_of_a_tensor_raises_in_a_comptime_callback():
    def f(x):
        comptime(lambda ctx: ctx.local("x").as_python_constant())
        return x + 1

    with pytest.raises(ComptimeFailed, match=r"Tensor\(float32, \[1\]\) is not known before run time"):
        compiled(f)(torch.ones(1))

    def g(x, flag):
        comptime(lambda ctx: results.append((bool(ctx.local("flag")), ctx.local("x") == ctx.local("flag"))))
        return x + 1 if flag else x

    results = []
    compiled(g)(torch.ones(1), flag=False)
    assert results == [(False, False)]
