"""Tensors that a function finds by name and that are replaced, and what calls write besides their results."""

from __future__ import annotations

import contextlib
import gc

import pytest
import torch
from support.agreement import assert_agree
from support.configs import config_for
from support.models import linear
from torch import nn

from dynx import cudagraphs
from dynx.errors import DynxWarning

# tensors that the function names


SCALE = None


class Scales:
    def __init__(self, scale):
        self.scale = scale


def tensor_cases(device):
    """Return for each way to name a tensor a function that reads it, and one that replaces it."""
    first, other = torch.full((3,), 2.0, device=device), torch.full((3,), 5.0, device=device)
    model, held, listed, named = linear(device), Scales(first.clone()), [first.clone()], {"scale": first.clone()}
    closure = first.clone()
    model.plain = first.clone()
    globals()["SCALE"] = first.clone()

    def replace_closure():
        nonlocal closure
        closure = other.clone()

    def replace_data():
        model.plain.data = other.clone()

    def replace_data_of_closure():
        closure.data = other.clone()

    return {
        "closure": (lambda x: model(x) * closure, replace_closure),
        "data of closure": (lambda x: model(x) * closure, replace_data_of_closure),
        "global": (lambda x: model(x) * SCALE, lambda: globals().__setitem__("SCALE", other.clone())),
        "attribute of an object": (lambda x: model(x) * held.scale, lambda: setattr(held, "scale", other.clone())),
        "element of a list": (lambda x: model(x) * listed[0], lambda: listed.__setitem__(0, other.clone())),
        "value of a dict": (lambda x: model(x) * named["scale"], lambda: named.__setitem__("scale", other.clone())),
        "attribute of a module": (lambda x: model(x) * model.plain, lambda: setattr(model, "plain", other.clone())),
        "data of an attribute": (lambda x: model(x) * model.plain, replace_data),
    }


@pytest.mark.parametrize("name", tensor_cases("cpu"))
def test_a_tensor_that_is_replaced(device, inputs, name):
    """The memory of the old tensor is freed, and given to others."""
    function, replace = tensor_cases(device)[name]
    run = cudagraphs.fast_path(function, torch.ones(2, 3, device=device), config=config_for(device, inputs=inputs))
    assert_agree(run, function, lambda: (torch.randn(2, 3, device=device),))
    replace()
    gc.collect()
    garbage = [torch.full((3,), float("nan"), device=device) for _ in range(100)]
    assert_agree(run, function, lambda: (torch.randn(2, 3, device=device),), calls=4)
    del garbage


def test_a_tensor_that_gets_other_memory_beside_patched_parameters(device):
    model, scale = linear(device), torch.full((3,), 2.0, device=device)
    run = cudagraphs.fast_path(lambda x: model(x) * scale, config=config_for(device, params="patch"))
    for number in range(8):
        if number == 4:
            scale.data = torch.full((3,), 5.0, device=device)
            gc.collect()
        x = torch.randn(2, 3, device=device)
        with torch.no_grad():
            torch.testing.assert_close(run(x), model(x) * scale)


@pytest.mark.slow
def test_a_training_step_whose_loss_names_a_tensor(device):
    """Weights of classes, for example, which are computed again after each epoch."""
    torch.manual_seed(0)
    model, twin = linear(device), linear(device)
    twin.load_state_dict(model.state_dict())
    weights = torch.ones(3, device=device)
    options = {"config": config_for(device)}
    optimizers = [torch.optim.SGD(module.parameters(), lr=0.1) for module in (model, twin)]
    step = cudagraphs.train_step(
        lambda x: (model(x) * weights).square().sum(), model.parameters(), optimizer=optimizers[0], **options
    )
    for number in range(8):
        if number == 4:
            weights = torch.full((3,), 3.0, device=device)
            gc.collect()
        x = torch.randn(2, 3, device=device)
        optimizers[1].zero_grad()
        expected = (twin(x) * weights).square().sum()
        expected.backward()
        optimizers[1].step()
        torch.testing.assert_close(step(x), expected.detach())
    torch.testing.assert_close(list(model.parameters()), list(twin.parameters()))


# what calls write that no version counts


def unnoticed(tensor):
    """Write as kernels do that are no operators, such as those of an attention library: the version stays."""
    tensor.data.add_(1)


@pytest.mark.parametrize("size", [3, 1 << 25])
def test_argument_that_is_mutated_without_a_new_version(device, size):
    """A recording has to copy it back; of large arguments checksums are compared."""
    model = linear(device)

    def write(cache, x):
        unnoticed(cache[-2:])
        return model(x) + cache[-1]

    run = cudagraphs.fast_path(write, config=config_for(device))
    cache, expected = (torch.zeros(size, device=device) for _ in range(2))
    x = torch.ones(2, 3, device=device)
    for _ in range(4):
        torch.testing.assert_close(run(cache, x), write(expected, x))
        assert torch.equal(cache, expected)


class Decoder:
    """Keeps a cache and its length, as `StaticCache` does, in an object that is no module."""

    def __init__(self, model, device):
        self.model, self.cache, self.length = model, torch.zeros(8, 3, device=device), torch.zeros(1, 1, device=device).long()

    def __call__(self, x):
        keys = self.model(x)
        self.cache.scatter_add_(0, self.length.expand(1, 3), keys)
        self.length.add_(1)
        return self.cache.sum(0) + keys


@pytest.mark.parametrize("with_example", [False, True])
def test_examples_do_not_advance_a_decoder(device, with_example):
    model = linear(device)
    decoder, twin = Decoder(model, device), Decoder(model, device)
    x = torch.ones(1, 3, device=device)
    with torch.no_grad():
        run = cudagraphs.fast_path(decoder, *([x] if with_example else []), config=config_for(device))
        assert decoder.length.item() == 0
        for number in range(6):
            torch.testing.assert_close(run(x * number), twin(x * number))
    assert (decoder.length.item(), twin.length.item()) == (6, 6)


def test_examples_do_not_change_buffers_or_arguments(device):
    model = nn.BatchNorm1d(3).to(device).train()
    before = [buffer.clone() for buffer in model.buffers()]
    x = torch.ones(4, 3, device=device)
    run = cudagraphs.fast_path(lambda x: model(x.add_(1)), x, config=config_for(device))
    assert model.num_batches_tracked.item() == 0
    assert all(map(torch.equal, before, model.buffers()))
    assert torch.equal(x, torch.ones_like(x))
    run(x.clone())
    assert model.num_batches_tracked.item() == 1


def test_a_loss_that_keeps_a_tensor_in_its_module_is_recorded(device):
    """Attributes keep the tensor of the capture, which replays overwrite."""

    class Keeping(nn.Linear):
        def forward(self, x):
            self.activations = super().forward(x)
            return self.activations

    torch.manual_seed(0)
    model = Keeping(3, 3).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = lambda x: model(x).square().sum() + 0.1 * model.activations.abs().sum()  # noqa: E731
    step = cudagraphs.train_step(loss, model.parameters(), optimizer=optimizer, config=config_for(device))
    losses = [step(torch.ones(2, 3, device=device)).item() for _ in range(5)]
    assert losses == sorted(losses, reverse=True)
    assert cudagraphs.stats().replays == 4


class Store:
    """Keeps a tensor under a name that is computed, which the search for what a function reads does not follow."""

    def put(self, number, tensor):
        setattr(self, f"slot{number}", tensor)

    def get(self, number):
        return getattr(self, f"slot{number}")


class Storing(nn.Module):
    def __init__(self, store):
        super().__init__()
        self.store = store

    def forward(self, x):
        self.store.put(0, x * 2)
        return x + self.store.get(0)


@pytest.mark.uncaptured
def test_a_capture_leaves_no_tensor_of_its_own_in_objects(device):
    store, of_twin = Store(), Store()
    run, twin = cudagraphs.fast_path(Storing(store), config=config_for(device)), Storing(of_twin)
    for number in range(5):
        x = torch.full((3,), float(number), device=device)
        warns = pytest.warns(DynxWarning, match="the function assigns slot0") if number == 1 else contextlib.nullcontext()
        with warns:
            torch.testing.assert_close(run(x), twin(x))
        torch.testing.assert_close(store.slot0, of_twin.slot0)


@pytest.mark.uncaptured
def test_a_parameter_that_gets_other_memory_in_each_call_warns_once(device):
    model, x, kept = linear(device), torch.ones(2, 3, device=device), []
    run = cudagraphs.fast_path(model, config=config_for(device))

    def call():
        kept.append(model.weight.data)
        model.weight.data = model.weight.data.clone()
        run(x)

    words = r"since the address of a parameter changes\n  change tensors in place, with copy_"
    with pytest.warns(DynxWarning, match=words) as caught:
        assert [call() for _ in range(20)]
    assert len(caught) == 1
