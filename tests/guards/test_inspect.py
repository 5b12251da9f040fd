"""`inspect`, `evict`, `reset`, `pin`, `count_hits` and `recompiles`."""

from __future__ import annotations

import functools
import gc
import math
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


def compiled_for(*values, **options):
    torch._dynamo.reset()
    compiled = torch.compile(scaled, backend="eager", dynamic=False, **options)
    for n in values:
        compiled(torch.ones(3), n)
    return compiled


def test_inspect_lists_every_cache_entry_with_its_guards():
    report = guards.inspect(compiled_for(2, 3))
    assert [entry.id for entry in report.entries] == ["0/0", "0/1"]
    assert (report.location.function, report.entries[0].location) == ("scaled", report.location)
    values = [[(guard.source, guard.expected) for guard in entry.guards if guard.kind == "value"] for entry in report.entries]
    assert values == [[("n", "2")], [("n", "3")]]
    (tensor,) = [guard for guard in report.entries[0].guards if guard.kind == "tensor"]
    assert (tensor.source, tensor.expected, tensor.type) == ("x", "float32, [3], stride [1]", "TENSOR_MATCH")
    assert tensor.location.file == __file__
    assert tensor.location.line == scaled.__code__.co_firstlineno + 1
    assert report.entries[0].size == len(report.entries[0].guards) > 5
    assert report.entries[0].backend == "eager"
    assert report.entries[0].seconds > 0
    assert report.entries[0].hits is None
    assert guards.inspect(scaled).entries == report.entries


def test_inspect_assigns_a_kind_to_every_guard():
    """A guard of kind "other" is one that dynx could not parse."""
    compiled = torch.compile(scaled, backend="eager")
    compiled(torch.ones(3), table={"a": 1})
    assert [guard.text for guard in guards.inspect(compiled).entries[0].guards if guard.kind == "other"] == []


def test_guards_compiled_inside_watch_name_the_lines_that_requested_them():
    with dynx.watch():
        compiled = compiled_for(2)
        (entry,) = guards.inspect(compiled).entries
    (guard,) = [guard for guard in entry.guards if guard.kind == "value"]
    assert [location.line for location in guard.requesters] == [scaled.__code__.co_firstlineno + 1]


def test_inspect_lists_resume_functions(broken):
    compiled = torch.compile(broken, backend="eager")
    compiled(torch.ones(3))
    first, resume = guards.inspect(compiled).entries
    assert first.resumes is None
    assert resume.resumes == broken.__code__.co_firstlineno + 2
    assert resume.location.function.endswith("broken")


@pytest.mark.parametrize("compile", [torch.compile, dynx.compile], ids=["torch", "dynx"])
def test_inspect_separates_modules_that_share_code(compile):
    torch._dynamo.reset()
    relu, tanh = (compile(module, backend="eager") for module in (torch.nn.ReLU(), torch.nn.Tanh()))
    relu(torch.ones(3)), tanh(torch.ones(3))
    assert len(guards.inspect(relu).entries) == len(guards.inspect(tanh).entries) == 1
    assert guards.inspect(relu).entries != guards.inspect(tanh).entries


def test_cache_entry_names_the_arguments_of_dynx_compile():
    compiled = dynx.compile(scaled, backend="eager", fullgraph=True)
    compiled(torch.ones(3))
    entry = guards.inspect(compiled).entries[-1]
    assert entry.config["fullgraph"] == "True"


def test_evicted_cache_entry_does_not_run_again():
    compiled = compiled_for(2, 3)
    first, second = guards.inspect(compiled).entries
    assert dynx.would_recompile(compiled, torch.ones(3), 2).hit
    guards.evict(first)
    assert [entry.id for entry in guards.inspect(compiled).entries] == [second.id]
    assert dynx.would_recompile(compiled, torch.ones(3), 2)
    assert dynx.would_recompile(compiled, torch.ones(3), 3).hit
    with pytest.raises(
        StaleEntry, match=r"entry 0/0 of .*test_inspect.py:\d+ in scaled is gone: it was evicted, or torch._dynamo was reset"
    ):
        guards.evict(first)


def test_evict_raises_for_a_cache_entry_from_before_a_reset():
    """torch reuses compile ids after a reset; evicting by id would remove an entry that the user never inspected."""
    compiled = compiled_for(2)
    (entry,) = guards.inspect(compiled).entries
    torch._dynamo.reset()
    compiled(torch.ones(3), 2)
    (again,) = guards.inspect(compiled).entries
    assert (again.id, again.tree) == (entry.id, entry.tree)  # equal in every field
    with pytest.raises(StaleEntry):
        guards.evict(entry)
    assert dynx.would_recompile(compiled, torch.ones(3), 2).hit


def test_guards_reset_keeps_cache_entries_of_other_functions():
    def subtract(x):
        return x - 1

    compiled = compiled_for(2, 3)
    second = torch.compile(subtract, backend="eager")
    second(torch.ones(3))
    guards.reset(compiled)
    assert guards.inspect(compiled).entries == ()
    assert len(guards.inspect(second).entries) == 1
    assert dynx.would_recompile(compiled, torch.ones(3), 2).outcome == "compile"


def test_guards_reset_lets_torch_compile_again_after_the_recompile_limit():
    with torch._dynamo.config.patch(recompile_limit=2):
        compiled = compiled_for(2, 3, 4)
        assert dynx.would_recompile(compiled, torch.ones(3), 5).outcome == "eager"
        guards.reset(compiled)
        assert dynx.would_recompile(compiled, torch.ones(3), 5).outcome == "compile"
        compiled(torch.ones(3), 5)
        assert dynx.would_recompile(compiled, torch.ones(3), 5).hit


def test_pinned_cache_entry_does_not_count_towards_the_recompile_limit():
    with torch._dynamo.config.patch(recompile_limit=1):
        compiled = compiled_for(2)
        (entry,) = guards.inspect(compiled).entries
        with pytest.raises(UsageError, match="unsafe_ignore_backend=True"):
            guards.pin(entry, unsafe_ignore_backend=False)
        with guards.pin(entry, unsafe_ignore_backend=True):
            compiled(torch.ones(3), 3)  # the pinned entry does not count, so torch compiles
            assert [entry.is_pinned for entry in guards.inspect(compiled).entries] == [True, False]
            graphs = []
            torch.compile(scaled, backend=lambda gm, inputs: graphs.append(gm) or gm.forward)(torch.ones(3), 2)
            assert graphs == []  # runs the pinned entry, although its backend differs
        assert (
            dynx.would_recompile(compiled, torch.ones(3), 2).outcome == "eager"
        )  # the pinned entry is removed, the limit is reached


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
@pytest.mark.parametrize("create", [Adds, lambda: without_grad], ids=["object", "decorated"])
def test_inspect_separates_callables_that_share_one_torch_wrapper(compile, create):
    """torch runs callable objects and functions with its own decorators in one wrapper, with one list of entries."""
    torch._dynamo.reset()
    compiled, second = compile(create(), backend="eager"), compile(without_grad_too, backend="eager")
    compiled(torch.ones(3)), second(torch.ones(3))
    report = guards.inspect(compiled)
    assert len(report.entries) == 1
    assert report.location.file == __file__
    assert report.entries[0] not in guards.inspect(second).entries
    with guards.count_hits(compiled) as hits:
        compiled(torch.ones(3)), second(torch.ones(3))
    assert list(hits.values()) == [1]


def test_inspect_would_recompile_and_count_hits_find_a_pinned_cache_entry():
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
            guards.evict(second)  # removed when the first was pinned
        with pytest.raises(UsageError, match="is pinned\n  call remove"):
            guards.evict(again)
        with pytest.raises(UsageError, match="is already pinned"):
            guards.pin(again, unsafe_ignore_backend=True)
        with guards.count_hits(compiled) as hits:
            compiled(x, 1)
        assert hits == {first.id: 1}
        compiled(x, 2)
        with guards.pin(guards.inspect(compiled).entries[1], unsafe_ignore_backend=True):
            assert [entry.is_pinned for entry in guards.inspect(compiled).entries] == [True, True]
        assert [entry.id for entry in guards.inspect(compiled).entries] == [first.id], (
            "removing the second pin removed the first"
        )
    pin.remove()
    assert guards.inspect(compiled).entries == ()


def test_precompiled_code_makes_would_recompile_return_unknown():
    """torch runs precompiled code if its guards hold; these guards cannot be evaluated without the call."""
    from torch._C._dynamo.eval_frame import _load_precompile_entry, _reset_precompile_entries

    compiled = compiled_for(2)
    (raw,) = entries_of(scaled.__code__)
    _load_precompile_entry(raw.code, raw.guards, raw.compiled)
    try:
        verdict = dynx.would_recompile(compiled, torch.ones(3), 2)
        assert (verdict.outcome, verdict.why) == ("unknown", "torch loaded precompiled code for it")
    finally:
        _reset_precompile_entries(raw.code)
    assert dynx.would_recompile(compiled, torch.ones(3), 2).hit


@pytest.mark.parametrize("value", ["0/0", scaled, len, Adds, None])
def test_evict_and_pin_raise_for_values_that_are_not_cache_entries(value):
    with pytest.raises(UsageError, match=r"is not a cache entry\n  pass one of guards.inspect\(fn\).entries"):
        guards.evict(value)
    with pytest.raises(UsageError, match="is not a cache entry"):
        guards.pin(value, unsafe_ignore_backend=True)
    with pytest.raises(UsageError, match="unsafe_ignore_backend=True"):
        guards.pin(value)


def test_count_hits_counts_every_call():
    compiled = compiled_for(2, 3)
    with guards.count_hits(compiled) as hits:
        for n in (2, 2, 3, 2):
            compiled(torch.ones(3), n)
        assert dict(hits) == {"0/0": 3, "0/1": 1}
        for n in (4, 4, 4):
            compiled(torch.ones(3), n)
    compiled(torch.ones(3), 2)
    assert dict(hits) == {"0/0": 3, "0/1": 1, "0/2": 2}
    assert [entry.hits for entry in guards.inspect(compiled).entries if entry.id == "0/0"] == [4]
    with guards.count_hits(scaled) as again:
        compiled(torch.ones(3), 3)
    assert again["0/1"] == 1


def test_predictions_are_not_counted_as_hits():
    compiled = compiled_for(2)
    with guards.count_hits(compiled) as hits:
        for n in (2, 2, 3):
            dynx.would_recompile(compiled, torch.ones(3), n)
        compiled(torch.ones(3), 2)
    assert dict(hits) == {"0/0": 1}


@pytest.mark.parametrize("wrap", [lambda f: functools.partial(f, n=3), torch.no_grad()], ids=["partial", "no_grad"])
def test_inspect_finds_the_entries_under_partials_and_decorators(wrap):
    compiled = compiled_for(2, 3)
    assert len(guards.inspect(wrap(compiled)).entries) == 2


@pytest.mark.parametrize(
    "function", [guards.inspect, guards.count_hits, guards.reset, guards.profile], ids=lambda fn: fn.__name__
)
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "NoneType has no Python code"),
        ("f", "str has no Python code"),
        (3, "int has no"),
        (Adds, "Adds is a class"),
        (len, "len has no Python code"),
        (math.sin, "sin has no Python code"),
    ],
    ids=repr,
)
def test_guards_functions_raise_for_values_that_have_no_cache_entries(function, value, message):
    """An empty report, or a reset of the wrapper that all callable objects share, would hide the mistake."""
    with pytest.raises(UsageError, match=message):
        function(value)


def test_remove_ends_count_hits():
    """`remove()` does the same as leaving the `with` block; it may be called twice, and before the block."""
    compiled = compiled_for(2)
    handle = guards.count_hits(compiled)
    handle.remove()
    with handle:
        compiled(torch.ones(3), 3)
        compiled(torch.ones(3), 3)
        handle.remove()
        compiled(torch.ones(3), 4)
        compiled(torch.ones(3), 4)
    assert len([count for count in handle.values() if count]) == 1


def test_recorded_recompiles_have_expected_and_actual_values_and_the_line():
    torch._dynamo.reset()
    compiled = torch.compile(scaled, backend="eager", dynamic=False)
    with dynx.watch() as w:
        compiled(torch.ones(3), 2)
        assert not w.recompiles
        compiled(torch.ones(3), 3)
        compiled(torch.ones(4), 3)
    compiled(torch.ones(5), 3)
    assert [
        [(reason.source, reason.expected, reason.got) for reason in recompile.reasons[:1]] for recompile in w.recompiles
    ] == [
        [("n", "2", "3")],
        [("x.size()[0]", "3", "4")],
    ]
    assert w.recompiles[0].reasons[0].location.line == scaled.__code__.co_firstlineno + 1


def test_inspect_and_count_hits_keep_no_cache_entry_alive():
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
