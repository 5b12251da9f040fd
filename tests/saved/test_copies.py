"""Hooks are part of models: these are copied for an average of weights, and sent to other processes."""

import copy
import multiprocessing
import pickle

import pytest
import torch
from support.saved_training import gradients, graphs_saved
from torch import nn

from dynx import saved

WEIGHT = torch.randn(8, 8, generator=torch.Generator().manual_seed(0))


@saved.inlineable_hooks(unpack=lambda packed: packed.float())
def half(tensor):
    return tensor.to(torch.bfloat16)


def leaf():
    return torch.randn(8, 8, generator=torch.Generator().manual_seed(1), requires_grad=True)


class Block(nn.Module):
    """Carries its hooks."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.hooks = saved.hooks(saved.rule(saved.codecs.bits()), saved.rule(saved.codecs.fp8(), min_numel=16))

    def forward(self, x):
        return self.linear(x).sin().exp()


def through_pickle(value):
    return pickle.loads(pickle.dumps(value))


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, through_pickle])
def test_a_model_that_carries_hooks_is_copied(again):
    model = Block()
    copied = again(model)
    compiled = torch.compile(lambda x: model.linear(x).sin().exp(), backend="aot_eager")
    with graphs_saved() as graphs:
        expected = gradients(compiled, leaf(), hooks=model.hooks)
        actual = gradients(compiled, leaf(), hooks=copied.hooks)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)
    assert len(graphs) == 1  # equal rules
    assert str(copied.hooks) == str(model.hooks)


def test_a_copy_made_while_the_hooks_are_entered_is_not_entered():
    hooks = Block().hooks
    with hooks:
        copied = copy.deepcopy(hooks)
        with copied:
            pass
    assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None


@pytest.mark.parametrize("codec", [saved.codecs.bf16(), saved.codecs.fp8(), saved.codecs.fp8("e5m2"), saved.codecs.int8(),
    saved.codecs.int4(), saved.codecs.bits(), saved.codecs.offload(), saved.codecs.recompute()], ids=str)  # fmt: skip
def test_every_codec_is_pickled(codec):
    hooks = saved.hooks(saved.rule(codec), validate=False, schedule="none")
    assert through_pickle(hooks)._published is hooks._published


def test_hooks_made_by_a_decorator_are_pickled_by_their_name():
    """The name of the pack function is that of the hooks then."""
    assert through_pickle(half) is half


def test_a_lambda_is_named_when_it_cannot_be_pickled():
    hooks = saved.hooks(saved.rule(saved.Codec("mine", lambda x: x * 1, lambda x: x)))
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(hooks)
    assert copy.deepcopy(hooks)._published is hooks._published


def test_the_cache_hash_is_pickled():
    hooks = saved.hooks(saved.rule(saved.codecs.fp8()), cache_hash="mine")
    assert through_pickle(hooks)._published is hooks._published


def _rules_of(hooks, queue):
    queue.put(repr(hooks))


@pytest.mark.slow
def test_a_spawned_process_gets_hooks():
    context = multiprocessing.get_context("spawn")
    queue, hooks = context.Queue(), Block().hooks
    process = context.Process(target=_rules_of, args=(hooks, queue))
    process.start()
    try:
        assert queue.get(timeout=120) == repr(hooks)
    finally:
        process.join()
