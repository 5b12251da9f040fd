"""Replays go around AOTAutograd's wrappers once these have shown that they do nothing, and only then."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from cudagraphs_runtimes import RUNTIMES
from torch import nn

from dynx import cudagraphs
from dynx.cudagraphs._compiled.bypass import Direct


@pytest.fixture
def wrapped(monkeypatch):
    """The calls that went through the wrappers."""
    calls, call = [], Direct.__call__

    def call_and_note(self, args):
        calls.append(len(args))
        return call(self, args)

    monkeypatch.setattr(Direct, "__call__", call_and_note)
    return calls


@pytest.fixture
def compiled(device):
    def compile(fn, dynamic=False, **config):
        config = cudagraphs.Config(runtime=RUNTIMES[device], **config)
        return torch.compile(fn, backend=cudagraphs.backend(config), dynamic=dynamic)

    return compile


def agree(run, eager, *layouts, calls=5):
    for step in range(calls):
        given = [torch.full((2, 3), step + 1.0, device=device) for device in layouts]
        torch.testing.assert_close(run(*(each.clone() for each in given)), eager(*given))


@pytest.mark.parametrize("outputs", ["clone", "alias", "static"])
def test_wrappers_that_do_nothing_are_left_out(device, compiled, wrapped, outputs):
    layer = nn.Linear(3, 3).to(device)

    def function(x, y):
        return layer(x) * y, None, x.sum()

    with torch.no_grad():
        agree(compiled(function, outputs=outputs), function, device, device)
    assert wrapped == [4, 4], "the first call is not recorded, the second shows it"


def changed(x):
    x.mul_(2)
    return x.sin()


@pytest.mark.parametrize(
    "function",
    [changed, lambda x: x[0], lambda x: (x.sin(), x.view(6))],
    ids=["changes", "a view", "a view beside another"],
)
def test_wrappers_that_do_something_stay(device, compiled, wrapped, function):
    with torch.no_grad():
        agree(compiled(function), function, device)
    assert len(wrapped) == 5


@pytest.mark.parametrize("mode", [True, False])
@pytest.mark.parametrize("before", [True, False])
def test_a_grad_mode_that_is_set(device, compiled, mode, before):
    def function(x):
        torch.set_grad_enabled(mode)
        return x.sin()

    run = compiled(function)
    for _ in range(4):
        with torch.set_grad_enabled(before):
            run(torch.ones(3, device=device))
            assert torch.is_grad_enabled() is mode


def test_inputs_that_need_gradients_though_nobody_looks(device):
    config = cudagraphs.Config(runtime=RUNTIMES[device], inputs="copy")
    options = {"guard_filter_fn": torch.compiler.skip_all_guards_unsafe}
    run = torch.compile(lambda x: x * 2, backend=cudagraphs.backend(config), options=options)
    with torch.no_grad():
        for _ in range(3):
            run(torch.ones(3, device=device))
    assert run(torch.full((3,), 2.0, device=device, requires_grad=True)).tolist() == [4.0] * 3


def test_threads_that_are_the_first(device, compiled):
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for number in range(5):
            run = compiled(lambda x: x * 2 + number)  # noqa: B023
            with torch.no_grad():
                run(torch.ones(3, device=device))  # threads that compile at the same time are torch's own matter

            def call(value):
                with torch.no_grad():
                    return [run(torch.full((3,), value, device=device))[0].item() for _ in range(20)]  # noqa: B023

            with ThreadPoolExecutor(4) as pool:
                found = list(pool.map(call, (1.0, 2.0, 3.0, 4.0)))
            assert found == [[value * 2 + number] * 20 for value in (1.0, 2.0, 3.0, 4.0)]
    finally:
        sys.setswitchinterval(interval)


@torch.no_grad()
def test_sizes_that_change(device, compiled, wrapped):
    """Torch marks such results, so that a graph which takes them is compiled for other sizes at once."""

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
def test_parameters_that_move(device, compiled, wrapped):
    layer = nn.Linear(3, 3).to(device)
    run = compiled(lambda x: layer(x))
    for _ in range(2):
        agree(run, layer, device, calls=3)
        layer.weight.data = torch.randn_like(layer.weight)
    agree(run, layer, device)
    assert len(wrapped) == 4, "two more, each of which records"


def test_autograd_has_no_part_in_it(device, compiled, wrapped):
    """A graph without gradients, of inputs that need some."""
    x = torch.ones(2, 3, device=device, requires_grad=True)
    run = compiled(lambda x: (x > 0, x.detach().sin()))
    for _ in range(4):
        positive, sine = run(x)
        assert not sine.requires_grad
        assert positive.all()
    assert len(wrapped) == 4
    with torch.no_grad():
        for _ in range(4):
            assert not run(x)[1].requires_grad
    assert len(wrapped) == 6, "a compilation of its own, without gradients"


@torch.no_grad()
def test_autocast_and_inference_mode(device, compiled, wrapped):
    layer = nn.Linear(3, 3).to(device)
    run = compiled(layer)
    for mode in (torch.autocast(device, torch.bfloat16), torch.inference_mode(), torch.no_grad()):
        with mode:
            agree(run, layer, device)
    assert len(wrapped) == 6
