"""Programs that do the same compiled as in eager code: a name, a function that makes the function, and its arguments."""

from __future__ import annotations

import collections
import dataclasses
import functools
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

PROGRAMS: dict[str, Callable[[], tuple[Any, tuple[Any, ...]]]] = {}
counted = 0
seen: list[int] = []
by_name: dict[str, list[int]] = collections.defaultdict(list)
recent = collections.deque([1, 2], maxlen=9)
ordered = collections.OrderedDict(a=1)


def program(make):
    PROGRAMS[make.__name__] = make
    return make


def simple(name, fn, *args):
    PROGRAMS[name] = lambda: (fn, args)


def x(*shape):
    return torch.randn(*(shape or (4, 8)), generator=torch.Generator().manual_seed(0))


Pair = collections.namedtuple("Pair", "first second")


@dataclasses.dataclass
class Batch:
    values: torch.Tensor
    steps: int = 0
    tags: list[str] = dataclasses.field(default_factory=list)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 8)
        self.head = nn.Linear(8, 10, bias=False)
        self.head.weight = self.embedding.weight
        self.calls, self.sizes = 0, []

    def forward(self, tokens):
        self.calls += 1
        self.sizes.append(tokens.shape[0])
        return self.head(self.embedding(tokens))


class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.zeros(()))
        self.blocks = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])
        self.heads = nn.ModuleDict({"a": nn.Linear(8, 8)})

    def forward(self, values):
        self.steps += 1
        for block in self.blocks:
            values = block(values)
        return self.heads["a"](values)


class Counter:
    total = 0

    def __init__(self):
        self.results = {}

    def add(self, values):
        Counter.total += 1
        self.results[len(self.results)] = values
        return values + Counter.total


class Slots:
    __slots__ = ("first", "second")

    def __init__(self):
        self.first = 1


class Scaled:
    def __init__(self):
        self._scale = 1

    @property
    def scale(self):
        return self._scale

    @scale.setter
    def scale(self, value):
        self._scale = value


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values):
        ctx.save_for_backward(values)
        return values.sin()

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0].cos()


@program
def module_with_buffers_and_dropout():
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2)), (x(),)


@program
def tied_weights():
    return Tied(), (torch.tensor([1, 2, 3]),)


@program
def module_lists_and_a_buffer():
    return Blocks(), (x(),)


@program
def overlapping_views():
    base = x(10)

    def change(first, second):
        first.add_(1)
        second.mul_(2)
        return first + second[:5]

    return change, (base[:5], base[2:8])


@program
def one_tensor_as_two_arguments():
    value = x()
    return (lambda first, second: first.add_(second)), (value, value)


@program
def a_parameter_and_its_transpose():
    weight = nn.Parameter(x(8, 8))
    return (lambda values: values @ weight @ weight.T), (x(),)


def _training(optimizer_of, *, scheduled=False):
    def make():
        net = nn.Linear(8, 1)
        optimizer = optimizer_of(net.parameters())
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1) if scheduled else None

        def step(batch):
            optimizer.zero_grad()
            loss = net(batch).pow(2).mean()
            loss.backward()
            optimizer.step()
            if scheduler is not None:
                scheduler.step()
            return loss.detach(), optimizer.param_groups[0]["lr"]

        return step, (x(),)

    return make


PROGRAMS["training_with_adam"] = _training(lambda parameters: torch.optim.Adam(parameters, lr=1e-2))
PROGRAMS["training_with_momentum"] = _training(lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9))
PROGRAMS["training_with_a_schedule"] = _training(lambda parameters: torch.optim.AdamW(parameters, lr=1e-2), scheduled=True)


@program
def closure():
    calls, sums = 0, []

    def run(values):
        nonlocal calls
        calls += 1
        sums.append(values.sum())
        return values * calls

    return run, (x(),)


@program
def recursion_in_a_closure():
    def power(values, exponent):
        return values if exponent == 1 else values * power(values, exponent - 1)

    return power, (x(), 3)


def count(values):
    global counted
    counted += 1
    seen.append(counted)
    by_name["a"].append(counted)
    recent.append(5)
    ordered["b"] = 2
    ordered.move_to_end("a")
    return values * counted * len(by_name["a"])


def default(values, kept=[]):  # noqa: B006 - the list is kept between calls
    kept.append(1)
    return values * len(kept)


def with_break(values):
    doubled = values * 2
    torch._dynamo.graph_break()
    seen.append(1)
    return doubled + 1


def raise_later(values):
    doubled = values * 2
    seen.append(0)
    torch._dynamo.graph_break()
    raise ValueError(f"bad size {doubled.shape[0]}")


def print_size(values):
    print("size", values.shape[0])
    return values + 1


def in_bfloat16(values, weight):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return values @ weight


def use_batch(batch):
    batch.steps += 1
    batch.tags.append("seen")
    batch.values = batch.values * 2
    return batch.values.sum(), batch


def fill_slot(slots, values):
    slots.second = slots.first + 1
    return values * slots.second


def rescale(scaled, values):
    scaled.scale += 1
    return values * scaled.scale


def generate(values):
    yield values + 1
    yield values + 2


def keep(values, kept):
    kept.append(values)
    return values * 1, values, kept


@program
def checkpointed():
    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    return (lambda values: checkpoint(net, values, use_reentrant=False)), (x(),)


@program
def forward_hook():
    net, calls = nn.Linear(8, 8), []
    net.register_forward_hook(lambda module, args, output: calls.append(1) or output * 2)
    return net, (x(),)


@program
def batch_of_a_loader():
    net = nn.Linear(8, 8)
    loader = DataLoader(TensorDataset(x(6, 8), torch.arange(6)), batch_size=3)
    return (lambda batch: net(batch[0]).sum() + batch[1].sum()), (next(iter(loader)),)


@program
def under_no_grad():
    net = nn.Linear(8, 8)
    return torch.no_grad()(lambda values: net(values)), (x(),)


@program
def compiled_module():
    return torch.compile(nn.Linear(8, 8), backend="aot_eager"), (x(),)


@program
def method():
    return Counter().add, (x(),)


@program
def nested_containers():
    value = x()
    return (lambda d: {"a": [d["x"][0] * 2, {"k": d["y"]}], "n": len(d)}), ({"x": [value, value], "y": value},)


simple("random_numbers", lambda values: values + torch.rand_like(values) + random.random(), x())
simple("in_place", lambda values: values.add_(1).mul_(2), x())
simple("dataclass", use_batch, Batch(x()))
simple("namedtuple", lambda pair: Pair(pair.first + 1, pair.second), Pair(x(), 3))
simple("globals", count, x())
simple("mutable_default", default, x())
simple("graph_break", with_break, x())
simple("exception", raise_later, x())
simple("print", print_size, x())
simple("autocast", in_bfloat16, x(), x(8, 8))
simple("slots", fill_slot, Slots(), x())
simple("property", rescale, Scaled(), x())
simple("generator", lambda values: sum(generate(values)), x())
simple("identity", keep, x(), [])
simple("partial", functools.partial(lambda scale, values: scale * values, x()), x())
simple("item", lambda values: values * float(values.sum().item()), x())
simple("custom_function", lambda values: Sine.apply(values), x().requires_grad_())
simple("set", lambda items, values: (items.add(3), values * len(items))[1], {1, 2}, x())
simple("frozenset", lambda items, values: values * len(items), frozenset([1, 2]), x())
simple("exception_as_argument", lambda error, values: values * len(error.args), ValueError("a", "b"), x())
simple("text", lambda values, text: (values * 2, text.upper()), x(), "ab")
simple("einsum", lambda values: torch.einsum("ij,kj->ik", values, values), x())
simple("complex", torch.fft.fft, x())
simple("sort", lambda values: values.sort(), x())
simple("boolean_mask", lambda values: values[values > 0], x())
simple("integers", lambda values: (values > 0).sum(), x())
simple("half", lambda values: values.half() * 2, x())
simple("functional_dropout", lambda values: F.dropout(values, 0.3), x())
simple("convolution", nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()), x(2, 3, 8, 8))
simple("attention", nn.MultiheadAttention(8, 2, batch_first=True), *[x(2, 3, 8)] * 3)
simple("transformer_layer", nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), x(2, 3, 8))
simple("weight_norm", nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)), x())
simple("spectral_norm", nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8)), x())

LOST_BY_TORCH_2_11 = ("method", "mutable_default")  # what the second call reads has changed, and there is no guard


def same_on_this_torch():
    """Return the names of the programs for which the installed torch does what eager code does."""
    is_2_11 = torch.__version__.startswith("2.11.")
    return [name for name in PROGRAMS if not (is_2_11 and name in LOST_BY_TORCH_2_11)]
