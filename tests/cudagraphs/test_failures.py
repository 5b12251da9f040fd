"""What ends a capture is named, with the line of the user's code, and leaves nothing behind."""

from __future__ import annotations

import inspect
import warnings
from threading import get_ident

import pytest
import torch
from support.configs import config_for
from support.device_work import CYCLES
from support.devices import on_cuda
from torch import nn

from dynx import cudagraphs
from dynx.cudagraphs._runtime.capture_lock import capturing_threads
from dynx.errors import DynxWarning


def line_of(function, text):
    lines, first = inspect.getsourcelines(function)
    return first + next(number for number, line in enumerate(lines) if text in line)


@pytest.mark.uncaptured
def test_the_operator_and_its_line_are_named(device):
    layer = nn.Identity()

    def function(x):
        y = layer(x)
        return y * y.sum().item()

    run, x = cudagraphs.fast_path(function, config=config_for(device)), torch.ones(3, device=device)
    words = rf"_local_scalar_dense.*\n  at .*test_failures.py:{line_of(function, '.item()')} in .*function"
    with pytest.warns(DynxWarning, match=words):
        results = [run(x) for _ in range(3)]
    assert all(torch.equal(result, function(x)) for result in results)
    (skip,) = cudagraphs.stats().skips
    assert skip.location.line == line_of(function, ".item()")


@pytest.mark.uncaptured
@pytest.mark.parametrize("caught", [Exception, RuntimeError])
def test_a_failure_that_the_function_catches_is_no_success(device, caught):
    """What it computes instead would be captured for ever."""
    layer = nn.Identity()

    def function(x):
        try:
            factor = float(x.sum())
        except caught:
            factor = 100.0
        return layer(x) * factor

    run, x = cudagraphs.fast_path(function, config=config_for(device)), torch.ones(3, device=device)
    with pytest.warns(DynxWarning, match="_local_scalar_dense"):
        results = [run(x) for _ in range(4)]
    assert all(torch.equal(result, x * 3) for result in results)


@pytest.mark.uncaptured
def test_an_error_of_eager_code_that_the_function_catches_does_not_matter(device):
    """CUDA raises some errors in captures only, and does not tell which."""
    layer = nn.Identity()

    def function(x):
        try:
            return layer(x) @ x
        except RuntimeError:
            return layer(x) * 2

    config = config_for(device, or_error=device == "cpu")
    run, x = cudagraphs.fast_path(function, config=config), torch.ones(2, 3, device=device)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DynxWarning)
        results = [run(x) for _ in range(4)]
    assert all(torch.equal(result, x * 2) for result in results)
    texts = [str(warning.message) for warning in caught]
    assert [text for text in texts if "raised in a capture, and the function caught it" not in text] == []


@pytest.mark.uncaptured
@pytest.mark.parametrize("entry", ["backend", "in_place", "graphed", "train_step"])
def test_sparse_gradients_run_uncaptured(device, entry):
    """They were counted by their storage, which sparse tensors lack, in the statistics: NotImplementedError."""
    torch.manual_seed(0)
    weights = []
    for is_captured in (False, True):
        torch.manual_seed(0)
        embedding = nn.Embedding(10, 4, sparse=True).to(device)
        optimizer = torch.optim.SGD(embedding.parameters(), 0.1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DynxWarning)  # that it runs uncaptured
            run = sparse_training(embedding, optimizer, device, entry if is_captured else "")
            for number in range(5):
                run(torch.tensor([number, 2], device=device))
        weights.append(embedding.weight.detach().clone())
    assert torch.equal(*weights)
    assert any("makes a sparse tensor" in skip.reason for skip in cudagraphs.stats().skips)


def sparse_training(embedding, optimizer, device, entry):
    config = config_for(device, gradients="in_place" if entry == "in_place" else "autograd")
    if entry == "train_step":
        return cudagraphs.train_step(
            lambda x: embedding(x).square().sum(), embedding.parameters(), optimizer=optimizer, config=config
        )
    run = embedding
    if entry == "graphed":
        run = cudagraphs.graphed(embedding.forward, (torch.tensor([1, 2], device=device),), config=config)
    elif entry:
        run = torch.compile(embedding, backend=cudagraphs.backend(config))

    def step(x):
        optimizer.zero_grad()
        run(x).square().sum().backward()
        optimizer.step()

    return step


@pytest.mark.uncaptured
def test_a_capture_that_fails_leaves_attributes_and_containers_as_they_were(device):
    class Holder:
        number, seen = 0, None

    holder, layer = Holder(), nn.Identity()
    holder.seen = [0]

    def function(x):
        y = layer(x) * 2
        if holder.seen[0] < -1:
            holder.number += 1
        if get_ident() in capturing_threads:
            holder.number = 1
            holder.seen.append(y)
            y.sum().item()
        return y

    run, x = cudagraphs.fast_path(function, config=config_for(device)), torch.ones(3, device=device)
    with pytest.warns(DynxWarning, match="_local_scalar_dense"):
        _ = [run(x) for _ in range(3)]
    assert (holder.number, holder.seen) == (0, [0])


@on_cuda
@pytest.mark.uncaptured
@pytest.mark.parametrize("solve", [torch.linalg.eigvalsh, torch.linalg.svdvals, torch.linalg.cholesky, torch.linalg.inv])
def test_the_call_after_a_failed_capture_of_a_solver_is_right(device, solve):
    """cuSOLVER reports the error of a capture once more in its next call, which raised in the user's code."""
    layer, x = nn.Identity(), torch.eye(8, device="cuda") * 2 + 1
    run, expected = cudagraphs.fast_path(lambda x: layer(solve(x))), solve(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DynxWarning)  # that it runs uncaptured
        for _ in range(4):
            torch.testing.assert_close(run(x), expected)


@on_cuda
def test_a_result_that_is_copied_to_the_cpu_is_captured(device):
    """It is a write to pinned memory. The result of each call has memory of its own, and the call waits for it."""
    model = nn.Linear(4, 4).to(device)

    def function(x):
        torch.cuda._sleep(CYCLES)
        return model(x).to("cpu", non_blocking=True)

    run = cudagraphs.fast_path(function, config=config_for(device, or_error=True))
    inputs = [torch.randn(2, 4, device=device) for _ in range(5)]
    results = [run(x) for x in inputs]
    torch.cuda.synchronize()
    for x, result in zip(inputs, results, strict=True):
        torch.testing.assert_close(result, model(x).cpu())
    assert cudagraphs.stats().replays == 4
