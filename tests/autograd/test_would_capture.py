"""`log.would_capture(loss)`: it says "capture" only where torch captures, and names the change."""

from __future__ import annotations

import pytest
import torch

import dynx
from dynx.autograd import CaptureVerdict
from dynx.errors import UsageError
from tests.autograd.test_recaptures import CHANGES, NEAR_MISSES, net, plain, x


@pytest.fixture
def predicted(monkeypatch):
    """Return a function that runs steps under a log, and returns for each backward pass the verdict before it and the truth."""
    found: list[tuple[CaptureVerdict, bool]] = []
    backward = torch.Tensor.backward

    def run(*steps, **options) -> list[tuple[CaptureVerdict, bool]]:
        torch._dynamo.reset()
        model = net()

        def asked(tensor, *args, **kwargs):
            verdict, before = log.would_capture(tensor), len(log)
            backward(tensor, *args, **kwargs)
            found.append((verdict, len(log) > before))

        with dynx.autograd.capture(backend=None, **options) as log:
            monkeypatch.setattr(torch.Tensor, "backward", asked)
            for step in steps:
                step(model)
        return found

    return run


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_predicted_or_unknown(change, predicted):
    first, second, kind, subject, before, after, _ = CHANGES[change]
    (verdict, _), *more = predicted(first, second)
    if change != "grad()":  # has no backward()
        assert all(is_captured for verdict, is_captured in more if verdict)
        verdict = next(verdict for verdict, is_captured in more if is_captured)
        if verdict:
            assert (kind, subject, before, after) in [(r.kind, r.subject, r.before, r.after) for r in verdict.reasons]


@pytest.mark.parametrize("near", NEAR_MISSES)
def test_no_near_miss_is_predicted_to_be_captured(near, predicted):
    first, second, options = NEAR_MISSES[near]
    _, *more = predicted(first, second, **options) or [None]  # grad() has no backward()
    assert not any(verdict for verdict, is_captured in more if not is_captured)


def test_a_log_whose_captures_are_gone_is_refused():
    with dynx.autograd.capture(backend=None) as log:
        plain(net())
    loss = net()(x()).sum()
    assert log.would_capture(loss).outcome == "capture"  # the cache still has the captures of the last block
    torch._dynamo.reset()
    with pytest.raises(UsageError, match="no longer in torch's cache"):
        log.would_capture(loss)


def test_a_tensor_without_an_autograd_graph_is_refused():
    with dynx.autograd.capture(backend=None) as log, pytest.raises(UsageError, match="no autograd graph"):
        log.would_capture(torch.ones(2))


class Named(torch.Tensor):
    """A subclass that changes nothing."""


def test_a_subclass_of_the_loss_is_no_proof_of_a_capture(predicted):
    def named(model):
        model.zero_grad()
        model(x()).pow(2).sum().as_subclass(Named).backward()

    def unnamed(model):
        model.zero_grad()
        model(x()).pow(2).sum().as_subclass(torch.Tensor).backward()

    _, *more = predicted(unnamed, named)
    assert not any(verdict and not is_captured for verdict, is_captured in more)


def test_a_graph_that_was_freed_is_refused():
    with dynx.autograd.capture(backend=None) as log:
        loss = torch.nn.Linear(2, 2)(torch.ones(2, 2)).square().sum()
        loss.backward()
        with pytest.raises(UsageError, match="freed"):
            log.would_capture(loss)
