"""`comptime` beside torch's: everything that one does, and where that one fails silently."""

from __future__ import annotations

import contextlib
import functools
import gc
import weakref

import pytest
import torch
import torch._dynamo.comptime as theirs
from fingerprint import fingerprint

import dynx
from dynx.comptime import ComptimeContext, ComptimeVar, comptime
from dynx.errors import ComptimeFailed, DynxWarning


def compiled(f, **options):
    return torch.compile(f, backend="eager", **options)


@pytest.mark.parametrize(
    ("ours", "torchs"),
    [(comptime, theirs.comptime), (ComptimeContext, theirs.ComptimeContext), (ComptimeVar, theirs.ComptimeVar)],
)
def test_everything_torch_has_is_there(ours, torchs):
    assert {name for name in dir(torchs) if not name.startswith("__") and "__" not in name} - set(dir(ours)) == set()


def test_torch_skips_a_closure_silently_and_we_run_it():
    """The callback of a closure never runs with torch's comptime, and nothing tells."""
    ran = []

    def f(x, with_it):
        name = "x"
        with_it(lambda ctx: ran.append(name))
        return x + 1

    compiled(f)(torch.ones(2), theirs.comptime)
    assert ran == []
    torch._dynamo.reset()  # neither is guarded on
    compiled(f, fullgraph=True)(torch.ones(2), comptime)
    assert ran == ["x"]


def test_torchs_value_is_always_none_and_ours_is_usable():
    def f(x, with_it):
        if with_it(lambda ctx: ctx.get_local("x").size(0) == 2):
            return x + 1
        return x - 1

    assert compiled(f)(torch.zeros(2), theirs.comptime).tolist() == [-1, -1]
    torch._dynamo.reset()
    assert compiled(f, fullgraph=True)(torch.zeros(2), comptime).tolist() == [1, 1]
    assert compiled(f, fullgraph=True)(torch.zeros(3), comptime).tolist() == [-1, -1, -1]


def test_outside_of_compilation_the_fallback_runs():
    assert comptime(lambda ctx: 1) is None
    assert comptime(lambda ctx: 1, lambda: "eager") == "eager"
    assert comptime(lambda ctx: 1, fallback_fn=lambda: "eager") == "eager"

    @comptime
    def nothing(ctx):
        raise AssertionError("nothing is compiled")


def test_a_variable_can_be_returned():
    def f(x, y):
        z = comptime(lambda ctx: ctx.local("y") if ctx.local("x").size(0) == 2 else ctx.local("x"))
        return z * 2 + (x - x) + (y - y)

    run = compiled(f, fullgraph=True)
    assert run(torch.ones(2), torch.full((2,), 3.0)).tolist() == [6, 6]


def test_what_cannot_stand_in_traced_code_is_refused():
    def f(x):
        return comptime(lambda ctx: object()) or x

    with pytest.raises(ComptimeFailed, match=r"returned <class 'object'>.*\n.*test_comptime.py:\d+ in .*f\n.*return a number"):
        compiled(f)(torch.ones(2))


def test_a_closure_whose_value_escapes_is_guarded():
    def f(x, factor):
        return x * comptime(lambda ctx: factor + 1)

    run = compiled(f)
    assert [run(torch.ones(1), n).item() for n in (1, 5, 1)] == [2, 6, 2]


def test_a_closure_over_a_list_whose_value_escapes_is_guarded_with_its_items():
    factors = [2]

    def f(x):
        held = factors
        return x * comptime(lambda ctx: held[0])

    run = compiled(f)
    before = run(torch.ones(1)).item()
    factors[0] = 7
    assert (before, run(torch.ones(1)).item()) == (2, 7)


def test_a_closure_that_decides_a_break_is_guarded(count_compiles):
    def f(x, wanted):
        y = x + 1
        comptime(lambda ctx: ctx.graph_break() if wanted == "break" else None)
        return y + 1

    run = torch.compile(f, backend=count_compiles)
    graphs = []
    for wanted in ("break", "go on", "break"):
        before = count_compiles.count
        assert run(torch.ones(1), wanted).item() == 3
        graphs.append(count_compiles.count - before)
    assert graphs == [2, 1, 0]


def test_a_closure_that_is_only_read_costs_no_recompile():
    def f(x, step):
        comptime(lambda ctx: ctx.log(step=step))
        return x + 1

    run = compiled(f)
    with dynx.watch() as w:
        for step in ("a", "b", "c"):
            run(torch.ones(1), step)
    assert len(w.compiles) == 1
    assert [each.values for each in w.logs] == [{"step": "a"}]


def test_an_assignment_to_a_closed_over_variable_is_told():
    def f(x):
        n = 1

        def callback(ctx):
            nonlocal n
            n = 5

        comptime(callback)
        return x * n

    with pytest.warns(DynxWarning, match="assigns to n, which the traced code does not see"):
        assert compiled(f)(torch.ones(1)).item() == 1


def test_a_method_of_an_object_made_in_traced_code_is_refused():
    class Say:
        def it(self, ctx):
            pass

    def f(x):
        comptime(Say().it)
        return x

    with pytest.raises(ComptimeFailed, match=r"(?s)the object|does not exist yet"):
        compiled(f)(torch.ones(1))


def test_a_callback_that_raises_is_named():
    def f(x):
        comptime(lambda ctx: 1 / 0)
        return x

    with pytest.raises(ComptimeFailed) as caught:
        compiled(f)(torch.ones(1))
    text = str(caught.value)
    assert "raised ZeroDivisionError: division by zero\n  at " in text
    assert 'on_error="warn" tells it and goes on' in text
    assert "InternalTorchDynamoError" not in text


def test_a_callback_that_raises_can_be_let_pass():
    def f(x, on_error):
        y = comptime(lambda ctx: 1 / 0, on_error=on_error)
        return x + 1 if y is None else x

    with pytest.warns(DynxWarning, match="ZeroDivisionError"):
        assert compiled(f)(torch.ones(1), "warn").item() == 2
    with dynx.watch() as w:
        assert compiled(f)(torch.ones(1), "record").item() == 2
    (trouble,) = w.troubles
    assert "ZeroDivisionError" in trouble.why


def test_wrong_arguments_are_named():
    with pytest.raises(ComptimeFailed, match="got 3 arguments"):
        compiled(lambda x: comptime(len, len, len) or x)(torch.ones(1))
    with pytest.raises(ComptimeFailed, match="needs a function, not 3"):
        compiled(lambda x: comptime(3) or x)(torch.ones(1))


def test_a_context_ends_with_its_callback():
    kept = []

    def f(x):
        comptime(lambda ctx: kept.extend([ctx, ctx.local("x")]))
        return x + 1

    compiled(f)(torch.ones(2))
    context, variable = kept
    assert repr(variable) == "Tensor(float32, [2])"
    with pytest.raises(ComptimeFailed, match="is over"):
        context.locals()
    with pytest.raises(ComptimeFailed, match="is over"):
        variable.as_fake()


def test_nothing_of_torch_stays_alive():
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
    assert [each() for each in alive] == [None, None]


def test_the_same_guards_with_and_without():
    """A callback that only looks at what torch has looked at already leaves no guard but that on itself."""

    def guards_of(f):
        _, _, (guards,) = fingerprint(f, (torch.ones(2), 3), contextlib.nullcontext())
        return [line.partition("#")[0].strip() for line in guards if "L['" in line]

    def plain(x, n):
        y = x + n
        return y * 2

    def looked(x, n):
        y = x + n
        comptime(lambda ctx: ctx.log(y=ctx.local("y")))
        return y * 2

    assert guards_of(plain)
    assert guards_of(looked) == guards_of(plain)


def test_partials_made_in_place_get_values():
    def say(prefix, ctx, *, suffix):
        ctx.log(text=prefix + suffix)

    def f(x):
        comptime(functools.partial(say, "a", suffix="b"))
        return x + 1

    with dynx.watch() as w:
        compiled(f, fullgraph=True)(torch.ones(1))
    assert w.logs[0].values == {"text": "ab"}


def test_a_callback_sees_what_the_traced_code_has_changed():
    """The real objects are out of date: their changes happen when the compiled code has run."""

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


def test_a_container_made_in_traced_code_cannot_be_changed():
    """Nobody would see the change."""

    def f(x):
        seen = [x, 1]
        comptime(lambda ctx: seen.append(2))
        return x + len(seen)

    with pytest.raises(ComptimeFailed, match="'tuple' object has no attribute 'append'"):
        compiled(f)(torch.zeros(1))

    def g(x):
        seen = [x, 1]
        return x + comptime(lambda ctx: len(seen))

    assert compiled(g)(torch.zeros(1)).item() == 2


def test_tuples_are_returned_item_by_item():
    def f(x):
        rows, y = comptime(lambda ctx: (ctx.local("x").size(0), ctx.local("x")))
        return y * rows + 0 * x

    run = compiled(f, dynamic=True)
    assert run(torch.ones(3)).tolist() == [3, 3, 3]
    assert run(torch.ones(2)).tolist() == [2, 2]


def test_a_file_is_written_at_once(tmp_path):
    """A callback may read it or close it."""
    seen = []

    def callback(ctx):
        with open(tmp_path / "graph.txt", "w") as file:
            ctx.print_graph(file=file)
        seen.append((tmp_path / "graph.txt").read_text())

    def f(x):
        y = x + 1
        comptime(callback)
        return y

    compiled(f)(torch.ones(1))
    assert "def forward(self" in seen[0]


def test_a_value_that_is_known_only_at_run_time_is_told():
    def f(x):
        comptime(lambda ctx: ctx.local("x").as_python_constant())
        return x + 1

    with pytest.raises(ComptimeFailed, match=r"Tensor\(float32, \[1\]\) is not known before run time"):
        compiled(f)(torch.ones(1))

    def g(x, flag):
        comptime(lambda ctx: seen.append((bool(ctx.local("flag")), ctx.local("x") == ctx.local("flag"))))
        return x + 1 if flag else x

    seen = []
    compiled(g)(torch.ones(1), False)
    assert seen == [(False, False)]
