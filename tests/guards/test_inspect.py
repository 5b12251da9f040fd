"""The cache as records, and what can be done with an entry."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import pytest
import torch

import dynx
from dynx import guards
from dynx._torch.cache.entries import entries_of
from dynx.errors import StaleEntry, UsageError
from dynx.guards._cache import entries


def scaled(x, n=1, table=None):
    y = x * n
    if table is not None:
        y = y + table["a"]
    return y


def compiled_for(*values, **named):
    torch._dynamo.reset()
    compiled = torch.compile(scaled, backend="eager", dynamic=False, **named)
    for n in values:
        compiled(torch.ones(3), n)
    return compiled


def test_every_version_is_listed_with_its_guards():
    report = guards.inspect(compiled_for(2, 3))
    assert [each.id for each in report.entries] == ["0/0", "0/1"]
    assert (report.location.function, report.entries[0].location) == ("scaled", report.location)
    values = [[(each.source, each.expected) for each in entry.guards if each.kind == "value"] for entry in report.entries]
    assert values == [[("n", "2")], [("n", "3")]]
    (tensor,) = [each for each in report.entries[0].guards if each.kind == "tensor"]
    assert (tensor.source, tensor.expected, tensor.type) == ("x", "float32, [3], stride [1]", "TENSOR_MATCH")
    assert tensor.location.file == __file__
    assert tensor.location.line == scaled.__code__.co_firstlineno + 1
    assert report.entries[0].size == len(report.entries[0].guards) > 5
    assert report.entries[0].backend == "eager"
    assert report.entries[0].seconds > 0
    assert report.entries[0].hits is None
    assert guards.inspect(scaled).entries == report.entries


def test_no_guard_is_left_unread():
    compiled = torch.compile(scaled, backend="eager")
    compiled(torch.ones(3), table={"a": 1})
    assert [each.text for each in guards.inspect(compiled).entries[0].guards if each.kind == "other"] == []


def test_all_lines_that_asked_are_known_while_dynx_watches():
    with dynx.watch():
        compiled = compiled_for(2)
        (entry,) = guards.inspect(compiled).entries
    (value,) = [each for each in entry.guards if each.kind == "value"]
    assert [each.line for each in value.requesters] == [scaled.__code__.co_firstlineno + 1]


def test_rests_after_graph_breaks_are_listed(broken):
    compiled = torch.compile(broken, backend="eager")
    compiled(torch.ones(3))
    first, rest = guards.inspect(compiled).entries
    assert first.resumes is None
    assert rest.resumes == broken.__code__.co_firstlineno + 2
    assert rest.location.function.endswith("broken")


@pytest.mark.parametrize("compile", [torch.compile, dynx.compile], ids=["torch", "dynx"])
def test_modules_that_share_code_are_told_apart(compile):
    torch._dynamo.reset()
    relu, tanh = (compile(each, backend="eager") for each in (torch.nn.ReLU(), torch.nn.Tanh()))
    relu(torch.ones(3)), tanh(torch.ones(3))
    assert len(guards.inspect(relu).entries) == len(guards.inspect(tanh).entries) == 1
    assert guards.inspect(relu).entries != guards.inspect(tanh).entries


def test_backend_and_configuration_of_dynx_compile():
    compiled = dynx.compile(scaled, backend="eager", fullgraph=True)
    compiled(torch.ones(3))
    entry = guards.inspect(compiled).entries[-1]
    assert entry.config["fullgraph"] == "True"


def test_an_evicted_version_is_not_run_again():
    compiled = compiled_for(2, 3)
    first, second = guards.inspect(compiled).entries
    assert dynx.would_recompile(compiled, torch.ones(3), 2).hit
    guards.evict(first)
    assert [each.id for each in guards.inspect(compiled).entries] == [second.id]
    assert dynx.would_recompile(compiled, torch.ones(3), 2)
    assert dynx.would_recompile(compiled, torch.ones(3), 3).hit
    with pytest.raises(StaleEntry, match=r"entry 0/0 of .*test_inspect.py:\d+ in scaled is not in the cache any more"):
        guards.evict(first)


def test_a_record_never_finds_another_entry():
    compiled = compiled_for(2)
    (entry,) = guards.inspect(compiled).entries
    torch._dynamo.reset()
    compiled(torch.ones(3), 2)
    (again,) = guards.inspect(compiled).entries
    assert (again.id, again.tree) == (entry.id, entry.tree)  # alike in every word
    with pytest.raises(StaleEntry):
        guards.evict(entry)
    assert dynx.would_recompile(compiled, torch.ones(3), 2).hit


def test_one_function_is_reset_and_others_stay():
    def other(x):
        return x - 1

    compiled = compiled_for(2, 3)
    second = torch.compile(other, backend="eager")
    second(torch.ones(3))
    guards.reset(compiled)
    assert guards.inspect(compiled).entries == ()
    assert len(guards.inspect(second).entries) == 1
    assert dynx.would_recompile(compiled, torch.ones(3), 2).outcome == "compile"


def test_a_reset_takes_back_that_torch_gave_up():
    with torch._dynamo.config.patch(recompile_limit=2):
        compiled = compiled_for(2, 3, 4)
        assert dynx.would_recompile(compiled, torch.ones(3), 5).outcome == "eager"
        guards.reset(compiled)
        assert dynx.would_recompile(compiled, torch.ones(3), 5).outcome == "compile"
        compiled(torch.ones(3), 5)
        assert dynx.would_recompile(compiled, torch.ones(3), 5).hit


def test_a_pinned_version_is_outside_of_the_limit():
    with torch._dynamo.config.patch(recompile_limit=1):
        compiled = compiled_for(2)
        (entry,) = guards.inspect(compiled).entries
        with pytest.raises(UsageError, match="unsafe_ignore_backend=True"):
            guards.pin(entry, unsafe_ignore_backend=False)
        with guards.pin(entry, unsafe_ignore_backend=True):
            compiled(torch.ones(3), 3)  # finds room
            assert [each.is_pinned for each in guards.inspect(compiled).entries] == [True, False]
            asked = []
            torch.compile(scaled, backend=lambda gm, inputs: asked.append(1) or gm.forward)(torch.ones(3), 2)
            assert asked == []  # runs the pinned one, whatever its backend
        assert dynx.would_recompile(compiled, torch.ones(3), 2).outcome == "eager"  # gone, and no room


class Adds:
    def __call__(self, x):
        return x + 1


@torch.no_grad()
def without_grad(x):
    return x - 1


@torch.no_grad()
def without_grad_too(x):
    return x - 2


@pytest.mark.parametrize("compile", [torch.compile, dynx.compile], ids=["torch", "dynx"])
@pytest.mark.parametrize("make", [Adds, lambda: without_grad], ids=["object", "decorated"])
def test_what_runs_in_code_of_torch_is_told_apart(compile, make):
    torch._dynamo.reset()
    compiled, other = compile(make(), backend="eager"), compile(without_grad_too, backend="eager")
    compiled(torch.ones(3)), other(torch.ones(3))
    report = guards.inspect(compiled)
    assert len(report.entries) == 1
    assert report.location.file == __file__
    assert report.entries[0] not in guards.inspect(other).entries
    with guards.count_hits(compiled) as hits:
        compiled(torch.ones(3)), other(torch.ones(3))
    assert list(hits.values()) == [1]


def test_a_pinned_version_is_known_everywhere():
    def bump(x, n):
        return x.add_(n)

    torch._dynamo.reset()
    compiled = torch.compile(bump, backend="eager", dynamic=False)
    x = torch.zeros(1)
    for n in (1, 2):
        compiled(x, n)
    first, second = guards.inspect(compiled).entries
    with guards.pin(first, unsafe_ignore_backend=True) as pin:
        assert repr(pin).startswith("<Pin: 0/0 of ")
        before = x.clone()
        assert dynx.would_recompile(compiled, x, 1).entry == first.id
        assert torch.equal(x, before), "the question ran the function"
        (again,) = guards.inspect(compiled).entries
        assert again == replace(first, is_pinned=True)
        with pytest.raises(StaleEntry):
            guards.evict(second)  # forgotten when the first was pinned
        with pytest.raises(UsageError, match="is pinned\n  call remove"):
            guards.evict(again)
        with pytest.raises(UsageError, match="is pinned already"):
            guards.pin(again, unsafe_ignore_backend=True)
        with guards.count_hits(compiled) as hits:
            compiled(x, 1)
        assert hits == {first.id: 1}
        compiled(x, 2)
        with guards.pin(guards.inspect(compiled).entries[1], unsafe_ignore_backend=True):
            assert [each.is_pinned for each in guards.inspect(compiled).entries] == [True, True]
        assert [each.id for each in guards.inspect(compiled).entries] == [first.id], "removing one pin leaves the other"
    pin.remove()
    assert guards.inspect(compiled).entries == ()


def test_versions_that_a_package_loaded_are_not_asked():
    """Of those torch tells nothing but whether they fit, and what fits would run."""
    from torch._C._dynamo.eval_frame import _load_precompile_entry, _reset_precompile_entries

    compiled = compiled_for(2)
    (raw,) = entries_of(scaled.__code__)
    _load_precompile_entry(raw.code, raw.guards, raw.compiled)
    try:
        said = dynx.would_recompile(compiled, torch.ones(3), 2)
        assert (said.outcome, said.why) == ("unknown", "torch loaded precompiled code for it")
    finally:
        _reset_precompile_entries(raw.code)
    assert dynx.would_recompile(compiled, torch.ones(3), 2).hit


@pytest.mark.parametrize("what", ["0/0", scaled, None])
def test_what_is_no_entry_is_told(what):
    with pytest.raises(UsageError, match=r"is no entry\n  give one of guards.inspect"):
        guards.evict(what)


def test_hits_are_counted_exactly():
    compiled = compiled_for(2, 3)
    with guards.count_hits(compiled) as hits:
        for n in (2, 2, 3, 2):
            compiled(torch.ones(3), n)
        assert dict(hits) == {"0/0": 3, "0/1": 1}
        for n in (4, 4, 4):
            compiled(torch.ones(3), n)
    compiled(torch.ones(3), 2)
    assert dict(hits) == {"0/0": 3, "0/1": 1, "0/2": 2}
    assert [each.hits for each in guards.inspect(compiled).entries if each.id == "0/0"] == [4]
    with guards.count_hits(scaled) as again:
        compiled(torch.ones(3), 3)
    assert again["0/1"] == 1


def test_what_has_no_code_is_told():
    with pytest.raises(UsageError, match="has no Python code that torch could compile"):
        guards.inspect(3)


def test_recompiles_name_both_values_and_the_rule():
    torch._dynamo.reset()
    compiled = torch.compile(scaled, backend="eager", dynamic=False)
    with guards.recompiles() as log:
        compiled(torch.ones(3), 2)
        assert len(log) == 0
        compiled(torch.ones(3), 3)
        compiled(torch.ones(4), 3)
    compiled(torch.ones(5), 3)
    assert [[(r.source, r.expected, r.got) for r in each.reasons[:1]] for each in log] == [
        [("n", "2", "3")],
        [("x.size()[0]", "3", "4")],
    ]
    assert log[0].reasons[0].location.line == scaled.__code__.co_firstlineno + 1


def test_nothing_is_kept_alive():
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    compiled(torch.ones(3))
    report = guards.inspect(compiled)
    with guards.count_hits(compiled):
        compiled(torch.ones(3))
    manager = weakref.ref(entries.raw_of(report.entries[0]).guards)
    del compiled
    torch._dynamo.reset()
    gc.collect()
    assert manager() is None
    assert report.entries[0].size > 0
