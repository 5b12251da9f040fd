"""Advice for code of libraries, which a user cannot change: options of the library, or what to leave outside.

The records are as `dynx run` writes them for programs with peft 0.21, lightning 2.6, diffusers 0.42, torch_geometric 2.8.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from dynx import Run
from dynx.advice import advise, spoken
from dynx.records import Compile, GraphBreak, Location, Reason, Recompile

CALLER = Location("train.py", 12, "forward")
SITE = "/usr/lib/python3/site-packages"


def within(library, file, function):
    return Location(f"{SITE}/{library}/{file}", 99, function, library=library, caller=CALLER)


def run_with(*, breaks=(), reason=None, called_from=None):
    location = reason.location if reason is not None else CALLER
    compiles = [
        Compile(0, "0/0", CALLER, "compiled", 1.0),
        Compile(0, "0/1", location, "compiled", 1.0, called_from=called_from),
    ]
    recompiles = (Recompile(0, "0/1", location, (reason,), 1.0),) if reason is not None else ()
    return Run((*compiles, *recompiles, *breaks))


@pytest.mark.parametrize(
    ("library", "file", "function", "advice"),
    [
        ("lightning", "pytorch/core/module.py", "log", "compile the network, not training_step"),
        ("diffusers", "schedulers/scheduling_ddim.py", "step", "compile the model, and call the scheduler's step() outside"),
        ("torch_geometric", "utils/loop.py", "add_remaining_self_loops", "add or remove self-loops before the call"),
        ("torchmetrics", "aggregation.py", "update", "update and compute metrics outside"),
    ],
)
def test_graph_break_in_a_library_is_advised_what_its_users_can_do(library, file, function, advice):
    location = within(library, file, function)
    graph_break = GraphBreak(location, (CALLER, location), "Data-dependent branching", kind="Data-dependent branching")
    (finding,) = advise(run_with(breaks=[graph_break]))
    assert finding.advice.startswith(advice)


def value_in(library, source, kind="value", expected="'default'", got="'other'", holder="object"):
    location = within(library, "model.py", "forward")
    return Reason(kind, source, expected, got, location, against="0/0", holder=holder, text=source)


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        (
            value_in("peft", "L['self'].active_adapter"),
            "one recompile per adapter is expected; to avoid it, peft's",
        ),
        (
            value_in("einops", "G['_type2backend']", "keys", "no a", "a"),
            "one recompile is expected: einops changes _type2backend",
        ),
        (
            value_in("fakelib", "L['self'].updates", expected="0", got="1", holder="module"),
            "fakelib changes it: call that outside",
        ),
        (value_in("lightning", "L['self']._results", "keys", "no a", "a"), "compile the network, not training_step"),
    ],
)
def test_value_that_a_library_holds_is_not_advised_to_be_changed_in_its_code(reason, advice):
    (finding,) = advise(run_with(reason=reason))
    assert finding.advice.startswith(advice)


def test_size_in_a_model_that_a_trainer_calls_is_to_be_marked_where_the_batch_is_made():
    reason = Reason("size", "L['x'].size()[0]", "6", "2", within("transformers", "bert.py", "forward"), against="0/0")
    (finding,) = advise(run_with(reason=reason, called_from=within("transformers", "trainer.py", "compute_loss")))
    assert (
        finding.advice == "mark_dynamic(x, 0) where the batch is made, such as in the data collator; or pad to one size there"
    )


def test_length_of_the_prompt_and_of_one_token_are_two_graphs_of_generate():
    reason = Reason(
        "size", "L['input_ids'].size()[1]", "5", "1", within("transformers", "generic.py", "wrapper"), against="0/0"
    )
    (finding,) = advise(run_with(reason=reason, called_from=within("transformers", "generation/utils.py", "_sample")))
    assert finding.advice.startswith("two graphs are expected: generate()")


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("L['self'].__dict__['_modules']['base'].__dict__['_modules']['0'].merged", "self.base[0].merged"),
        ("L['data']._store._mapping['x']", "data.x"),
        ("___from_numpy(L['x'])", "x"),
    ],
)
def test_guard_source_is_written_as_the_user_writes_the_value(source, name):
    assert spoken(source) == name


def test_value_with_an_option_of_the_library_is_a_finding_beside_the_graph_break_around_it():
    location = within("transformers", "generic.py", "maybe_install_capturing_hooks")
    graph_break = GraphBreak(location, (CALLER, location), "lock", kind="Unsupported context manager")
    reason = Reason("attribute", "L['self']._hooks", None, None, location, against="0/0", holder="module", text="hooks")
    reason = replace(reason, location=replace(location, function="install_all_output_capturing_hooks"))
    findings = advise(run_with(breaks=[graph_break], reason=reason, called_from=location))
    assert sorted(finding.rule for finding in findings) == ["DX121", "DX501"]
