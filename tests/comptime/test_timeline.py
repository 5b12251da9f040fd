"""`timeline`: what each line cost, exactly attributed, and nothing changed."""

from __future__ import annotations

import contextlib
import json
import time

import pytest
import torch
from fingerprint import fingerprint
from torch._dynamo import symbolic_convert
from torch._dynamo.output_graph import OutputGraph

from dynx.comptime import comptime, timeline


def helper(x):
    y = x.sin()
    return y + 1


def program(x, n):
    a = x * n
    b = helper(a)
    try:
        raise ValueError
    except ValueError:
        b = b + 2
    return b


def line(function, offset):
    return function.__code__.co_firstlineno + offset


def at(tl, function, offset):
    (found,) = [each for each in tl.by_line() if each.location.line == line(function, offset)]
    return found


def test_nodes_guards_and_exceptions_belong_to_their_lines():
    with timeline() as tl:
        torch.compile(program, backend="eager")(torch.ones(3), 2)
    assert at(tl, program, 1).nodes == ("mul",)
    assert at(tl, helper, 1).nodes == ("sin",)
    assert len(at(tl, helper, 2).nodes) == 1
    assert at(tl, program, 2).nodes == (), "a line that inlines owns only what it does itself"
    assert "L['x']" in [guard.source for guard in at(tl, program, 1).guards]
    assert at(tl, program, 4).exceptions == 1
    assert at(tl, program, 1).source == "    a = x * n"
    assert at(tl, program, 1).instructions >= 3


def test_self_time_is_without_what_was_inlined():
    def slow(x):
        comptime.sleep(0.2)
        return x + 1

    def f(x):
        y = slow(x)
        return y * 2

    with timeline() as tl:
        torch.compile(f, backend="eager")(torch.ones(3))
    caller = at(tl, f, 1)
    assert caller.cumulative > 0.2 > 10 * caller.seconds
    assert sum(each.seconds for each in tl.by_line(internals=True)) == pytest.approx(tl.seconds)


def test_the_backend_is_told_apart():
    def backend(graph_module, example_inputs):
        time.sleep(0.3)
        return graph_module.forward

    with timeline() as tl:
        torch.compile(helper, backend=backend)(torch.ones(3))
    (compile,) = tl.compiles
    assert compile.backend > 0.3
    assert all(each.seconds < 0.25 for each in tl.by_line())


def test_discarded_attempts_are_wasted():
    def f(x):
        y = x + 1
        comptime.sleep(0.1)
        torch._dynamo.graph_break()
        return y * 2

    with timeline() as tl:
        torch.compile(f, backend="eager")(torch.ones(3))
    first, rest = tl.compiles
    assert (first.attempts, rest.attempts) == (2, 1)
    assert first.wasted > 0.1
    assert rest.wasted == 0
    assert tl.wasted == first.wasted
    assert at(tl, f, 1).nodes == ("add",), "what an abandoned attempt traced counts for nothing"
    assert at(tl, f, 4).location.function.endswith("f"), "the rest of a function is the same function"


def test_every_line_that_asked_for_a_guard():
    """torch keeps the first only."""

    def f(x):
        y = x + 1
        z = x.size(0)
        return y * z + x

    with timeline() as tl:
        torch.compile(f, backend="eager")(torch.ones(3))
    assert {each.line for each in tl.guard_origins("L['x']")} == {each.line for each in tl.guard_origins("x")}
    assert line(f, 1) in {each.line for each in tl.guard_origins("x")}
    assert tl.guard_origins("nothing") == ()


def test_shape_guards():
    def f(x):
        y = x + 1
        if x.size(0) > 2:
            y = y * 2
        return y

    with timeline() as tl:
        torch.compile(f, backend="eager", dynamic=True)(torch.ones(4))
    assert any("> 2" in text or "2 <" in text or ">= 3" in text for text in at(tl, f, 2).shape_guards)


def test_two_compiles_with_the_same_id():
    with timeline() as tl:
        for _ in range(2):
            torch._dynamo.reset()
            torch.compile(helper, backend="eager")(torch.ones(3))
    assert [each.id for each in tl.compiles] == ["0/0", "0/0"]
    assert at(tl, helper, 1).nodes == ("sin", "sin")


def test_the_same_graphs_code_and_guards_with_and_without():
    args = (torch.ones(3), 2)
    plain = fingerprint(program, args, contextlib.nullcontext())
    assert plain[0]
    assert plain[2]
    assert fingerprint(program, args, timeline()) == plain


def test_nothing_is_left_wrapped():
    step, compile = symbolic_convert.InstructionTranslatorBase.step, OutputGraph.call_user_compiler
    with timeline(), timeline() as inner:
        torch.compile(helper, backend="eager")(torch.ones(3))
    assert symbolic_convert.InstructionTranslatorBase.step is step
    assert OutputGraph.call_user_compiler is compile
    assert at(inner, helper, 1).nodes == ("sin",)


def test_it_can_be_read_elsewhere():
    with timeline() as tl:
        torch.compile(program, backend="eager")(torch.ones(3), 2)
    data = json.loads(tl.to_json())
    assert len(data["compiles"]) == 1
    assert all(each["location"]["line"] > 0 for each in data["lines"])
    page = tl._repr_html_()
    assert "a = x * n" in page
    assert "nodes: mul" in page


def test_an_exception_in_the_program_passes():
    def f(x):
        x.add_(1)
        raise KeyError("mine")

    with timeline() as tl, pytest.raises(KeyError):
        torch.compile(f, backend="eager")(torch.ones(3))
    assert tl.by_line()
