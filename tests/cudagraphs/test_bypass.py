"""Replays bypass AOTAutograd's wrappers only after a call in which the wrappers changed neither arguments nor results."""

from __future__ import annotations

import functools
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest
import torch
from support import configs
from support.agreement import assert_agree
from torch import nn

from dynx import cudagraphs
from dynx.cudagraphs._compiled.bypass import Bypass


@pytest.fixture
def wrapper_calls(monkeypatch):
    """A list with an item for each call that went through AOTAutograd's wrappers."""
    calls, call = [], Bypass.__call__

    def call_and_count(self, args):
        calls.append(len(args))
        return call(self, args)

    monkeypatch.setattr(Bypass, "__call__", call_and_count)
    return calls


@pytest.fixture
def compiled(device):
    return functools.partial(configs.compiled, device=device)


def agree(run, eager, *devices, calls=5):
    assert_agree(
        run, eager, lambda: [torch.randn(2, 3, device=device) for device in devices], calls=calls, grad_mode=nullcontext
    )


@pytest.mark.parametrize("outputs", ["clone", "alias", "static"])
def test_replays_bypass_aot_autograd_wrappers_that_have_no_effect(device, compiled, wrapper_calls, outputs):
    layer = nn.Linear(3, 3).to(device)

    def function(x, y):
        return layer(x) * y, None, x.sum()

    with torch.no_grad():
        agree(compiled(function, outputs=outputs), function, device, device)
    assert wrapper_calls == [4, 4], "the first call warms up, the second shows that the wrappers do nothing"


def mutating(x):
    x.mul_(2)
    return x.sin()


@pytest.mark.parametrize(
    "function",
    [mutating, lambda x: x[0], lambda x: (x.sin(), x.view(6))],
    ids=["mutation", "view", "view beside another output"],
)
def test_replays_keep_aot_autograd_wrappers_for_mutations_and_views(device, compiled, wrapper_calls, function):
    with torch.no_grad():
        agree(compiled(function), function, device)
    assert len(wrapper_calls) == 5


@pytest.mark.parametrize("enabled_inside", [True, False])
@pytest.mark.parametrize("enabled_before", [True, False])
def test_grad_mode_set_by_a_compiled_function_stays_set_after_replays(device, compiled, enabled_inside, enabled_before):
    def function(x):
        torch.set_grad_enabled(enabled_inside)
        return x.sin()

    run = compiled(function)
    for _ in range(4):
        with torch.set_grad_enabled(enabled_before):
            run(torch.ones(3, device=device))
            assert torch.is_grad_enabled() is enabled_inside


def test_inputs_that_require_grad_match_eager_if_guards_are_skipped(device):
    options = {"guard_filter_fn": torch.compiler.skip_all_guards_unsafe}
    backend = cudagraphs.backend(configs.config_for(device, inputs="copy"))
    run = torch.compile(lambda x: x * 2, backend=backend, options=options)
    with torch.no_grad():
        for _ in range(3):
            run(torch.ones(3, device=device))
    assert run(torch.full((3,), 2.0, device=device, requires_grad=True)).tolist() == [4.0] * 3


def test_threads_that_race_for_the_first_replay_get_their_own_results(device, compiled):
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for number in range(5):
            run = compiled(lambda x: x * 2 + number)  # noqa: B023
            with torch.no_grad():
                run(torch.ones(3, device=device))  # compiling in several threads at once is not what is tested

            def call(value):
                with torch.no_grad():
                    return [run(torch.full((3,), value, device=device))[0].item() for _ in range(20)]  # noqa: B023

            with ThreadPoolExecutor(4) as pool:
                actual = list(pool.map(call, (1.0, 2.0, 3.0, 4.0)))
            assert actual == [[value * 2 + number] * 20 for value in (1.0, 2.0, 3.0, 4.0)]
    finally:
        sys.setswitchinterval(interval)


@torch.no_grad()
def test_replayed_outputs_keep_the_dynamic_dimension_marks_that_torch_sets(device, compiled, wrapper_calls):
    """torch marks dynamic dimensions of outputs, so that a graph which takes them is compiled with dynamic shapes at once."""

    def function(x):
        return x * x.size(0)

    def marks(result):
        return {name: getattr(result, name) for name in dir(result) if name.endswith("_dynamic_indices")}

    run, expected = compiled(function, dynamic=True), torch.compile(function, backend="aot_eager", dynamic=True)
    for rows in (2, 3, 3, 3, 4):
        x = torch.ones(rows, 2, device=device)
        result = run(x)
        torch.testing.assert_close(result, x * rows)
        assert marks(result) == marks(expected(x))
        assert marks(result)


@torch.no_grad()
def test_recapture_for_new_parameter_addresses_calls_aot_autograd_wrappers_once(device, compiled, wrapper_calls):
    layer = nn.Linear(3, 3).to(device)
    run = compiled(lambda x: layer(x))
    for _ in range(2):
        agree(run, layer, device, calls=3)
        layer.weight.data = torch.randn_like(layer.weight)
    agree(run, layer, device)
    assert len(wrapper_calls) == 4, "two more recordings, one call each"


def test_aot_autograd_wrappers_are_bypassed_only_while_grad_mode_is_off(device, compiled, wrapper_calls):
    """An input requires grad, but no output does, so autograd has nothing to do in either grad mode."""
    x = torch.ones(2, 3, device=device, requires_grad=True)
    run = compiled(lambda x: (x > 0, x.detach().sin()))
    for _ in range(4):
        positive, sine = run(x)
        assert not sine.requires_grad
        assert positive.all()
    assert len(wrapper_calls) == 4
    with torch.no_grad():
        for _ in range(4):
            assert not run(x)[1].requires_grad
    assert len(wrapper_calls) == 6, "under no_grad torch compiles another graph"


@torch.no_grad()
def test_aot_autograd_wrappers_are_bypassed_under_autocast_and_inference_mode(device, compiled, wrapper_calls):
    layer = nn.Linear(3, 3).to(device)
    run = compiled(layer)
    for mode in (torch.autocast(device, torch.bfloat16), torch.inference_mode(), torch.no_grad()):
        with mode:
            agree(run, layer, device)
    assert len(wrapper_calls) == 6
