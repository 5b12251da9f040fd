"""Hooks in every condition in which a program may train: the gradients are those of eager code without hooks.

The codec is exact, so that the comparison is too; each program is compared with itself compiled without hooks where rounding
differs between eager and compiled code.
"""

import functools

import pytest
import torch
import torch.nn.functional as F
from support.saved_training import EXACT, exact_hooks, gradients, graphs_saved
from torch import nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from dynx import saved


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x.sin() * factor

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x.cos() * ctx.factor, None


class Stash(torch.autograd.Function):
    """Keeps a tensor on `ctx` itself, which torch saves without a version check."""

    @staticmethod
    def forward(ctx, x):
        ctx.y = x.exp()
        return ctx.y * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.y * 2


def normal(*shape, grad=True, dtype=torch.float32):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(1)).requires_grad_(grad)


def mlp(x):
    return F.gelu(x @ WEIGHT) @ WEIGHT.T


WEIGHT = torch.randn(16, 16, generator=torch.Generator().manual_seed(2))


keep_matmuls = functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])


def selective(x):
    return checkpoint(mlp, x, use_reentrant=False, context_fn=keep_matmuls)


def masked(x):
    return torch.where(x > 0, x * x, x.exp())


def qkv_slices(x):
    q, k, v = (x @ WEIGHT)[:, :12].chunk(3, dim=-1)
    return torch.softmax(q @ k.T, -1) @ v


def in_place(x):
    y = x * 2
    return F.relu(y, inplace=True) * y


def split_outputs(x):
    a, b = (x * 3).split(8, dim=-1)
    return a * b, a


def broken(x):
    y = x.sin() * x
    torch._dynamo.graph_break()
    return y.exp() * y


PROGRAMS = {
    "matmul and gelu": (mlp, [normal(8, 16)]),
    "transposed": (lambda x: (x.T @ x).sin().T, [normal(8, 16)]),
    "a view and its base": (lambda x: (x.sin().view(-1) * 2).exp().sum() + x.sin().square(), [normal(8, 16)]),
    "one tensor saved twice": (lambda x: (x.sin() * x.sin()).exp(), [normal(8, 16)]),
    "square of an activation": (lambda x: (y := x @ WEIGHT) * y, [normal(8, 16)]),
    "inputs without gradient": (lambda x, y: (x * y).exp() * y.sin(), [normal(8, 16), normal(8, 16, grad=False)]),
    "output that is saved": (lambda x: x.exp(), [normal(8, 16)]),
    "output twice": (lambda x: ((y := x.exp()), y), [normal(8, 16)]),
    "slices of one tensor": (qkv_slices, [normal(16, 16)]),
    "split": (split_outputs, [normal(8, 16)]),
    "expanded": (lambda x: (x.sin()[:1].expand(8, 16) * x).exp(), [normal(8, 16)]),
    "in-place relu": (in_place, [normal(8, 16)]),
    "where": (masked, [normal(8, 16)]),
    "a number": (lambda x: x.sum().exp() * x, [normal(2, 2)]),
    "no elements": (lambda x: x.exp() * x, [normal(0, 16)]),
    "float64": (lambda x: x.exp() * x, [normal(8, 16, dtype=torch.float64)]),
    "bfloat16": (lambda x: x.exp() * x, [normal(8, 16, dtype=torch.bfloat16)]),
    "complex": (lambda x: torch.view_as_real(x * x * x).sin(), [normal(8, 16, dtype=torch.complex64)]),
    "indices": (lambda x: x.exp().max(dim=1).values * x[:, 0], [normal(8, 16)]),
    "sorted": (lambda x: x.exp().sort(dim=1).values.cumprod(1), [normal(8, 16)]),
    "checkpoint": (lambda x: checkpoint(mlp, x, use_reentrant=False), [normal(8, 16)]),
    "selective checkpoint": (selective, [normal(8, 16)]),
    "custom Function": (lambda x: Scale.apply(x, 3.0) * x, [normal(8, 16)]),
    "Function with attributes of ctx": (lambda x: Stash.apply(x) * x.sin(), [normal(8, 16)]),
    "dropout": (lambda x: F.dropout(x.exp(), 0.5) * x, [normal(8, 16)]),
    "attention": (lambda x: F.scaled_dot_product_attention(x, x * 2, x.sin()), [normal(1, 2, 8, 16)]),
    "log softmax": (lambda x: F.cross_entropy(x @ WEIGHT, torch.arange(8)), [normal(8, 16)]),
    "layer norm": (lambda x: F.layer_norm(x.sin(), (16,)).exp(), [normal(8, 16)]),
    "embedding": (lambda w: F.embedding(torch.arange(4), w.sin()).exp(), [normal(8, 16)]),
    "cumulative": (lambda x: x.sin().cumsum(0).logcumsumexp(1), [normal(8, 16)]),
    "graph break": (broken, [normal(8, 16)]),
    "constant": (lambda x: x * torch.arange(16.0).sin() * x, [normal(8, 16)]),
    "index_put": (lambda x: x.exp().index_put((torch.arange(4),), x[:4].sin(), accumulate=True), [normal(8, 16)]),
}
MODULES = {
    "conv, channels last": lambda: (
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)).to(memory_format=torch.channels_last),
        normal(2, 3, 8, 8).to(memory_format=torch.channels_last),
    ),
    "batch norm": lambda: (nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.SiLU()), normal(8, 16)),
    "frozen parameters": lambda: (
        nn.Sequential(nn.Linear(16, 8).requires_grad_(requires_grad=False), nn.Tanh()),
        normal(8, 16),
    ),
    "max pool": lambda: (nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.Sigmoid()), normal(2, 1, 8, 8)),
    "transformer layer": lambda: (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), normal(2, 8, 16)),
    "group norm": lambda: (nn.Sequential(nn.GroupNorm(2, 4), nn.Hardswish(), nn.ELU()), normal(2, 4, 8)),
    "weight norm": lambda: (nn.utils.parametrizations.weight_norm(nn.Linear(16, 8)), normal(8, 16)),
    "bilinear": lambda: (nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Softplus()), normal(1, 1, 4, 4)),
}


# inductor compiles the same graphs: it is tested where layouts and the order of saved tensors matter
WITH_INDUCTOR = ("slices of one tensor", "transposed", "expanded", "Function with attributes of ctx")


@pytest.mark.parametrize(
    ("name", "backend"), [*((name, "aot_eager") for name in PROGRAMS), *((name, "inductor") for name in WITH_INDUCTOR)]
)
def test_programs(name, backend):
    fn, inputs = PROGRAMS[name]
    expected = gradients(torch.compile(fn, backend=backend), *inputs)
    torch._dynamo.reset()
    actual = gradients(torch.compile(fn, backend=backend), *inputs, hooks=exact_hooks())
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", MODULES)
def test_modules(name):
    torch.manual_seed(0)
    module, x = MODULES[name]()
    start = {key: value.clone() for key, value in module.state_dict().items()}
    parameters = list(module.parameters())
    expected = gradients(torch.compile(module, backend="aot_eager"), x, parameters=parameters)
    torch._dynamo.reset()
    module.load_state_dict(start)
    with graphs_saved() as graphs:
        actual = gradients(torch.compile(module, backend="aot_eager"), x, parameters=parameters, hooks=exact_hooks())
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)
    assert all(tensor.codec is None for graph in graphs for tensor in graph.tensors if tensor.kind == "param")


@pytest.mark.slow
def test_most_programs_are_packed():
    """The comparison above would pass with hooks that pack nothing."""
    packed = []
    for name, (fn, inputs) in PROGRAMS.items():
        torch._dynamo.reset()
        with graphs_saved() as graphs:
            gradients(torch.compile(fn, backend="aot_eager"), *inputs, hooks=exact_hooks())
        if any(tensor.codec == EXACT.name for graph in graphs for tensor in graph.tensors):
            packed.append(name)
    assert len(packed) >= 18  # backward of the others needs only inputs


def test_dynamic_sizes():
    """One graph for all sizes, also where the codec stores a size."""
    compiled = torch.compile(mlp, backend="aot_eager", dynamic=True)
    hooks = saved.hooks(saved.rule(saved.codecs.bits(), dtype=torch.bool), saved.rule(EXACT))
    with graphs_saved() as graphs:
        for size in (8, 12, 5):
            x = normal(size, 16)
            torch.testing.assert_close(gradients(compiled, x, hooks=hooks), gradients(mlp, x))
    assert len(graphs) == 1


def test_a_codec_that_stores_a_dynamic_size():
    def dropout(x):
        return F.dropout(x.T.contiguous(), 0.5) * 2

    inputs = [normal(size, 16) for size in (17, 41, 27)]  # torch compiles multiples of 8 apart
    expected = [gradients(torch.compile(dropout, backend="aot_eager", dynamic=True), x) for x in inputs]
    torch._dynamo.reset()
    compiled = torch.compile(dropout, backend="aot_eager", dynamic=True)
    with graphs_saved() as graphs:
        actual = [gradients(compiled, x, hooks=saved.hooks(saved.rule(saved.codecs.bits()))) for x in inputs]
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)
    assert len(graphs) == 1
    assert [tensor.codec for tensor in graphs[0].tensors].count("bits") == 1


def test_autocast():
    def run(x):
        with torch.autocast("cpu", torch.bfloat16):
            return F.gelu(x @ WEIGHT) @ WEIGHT

    expected = gradients(torch.compile(run, backend="aot_eager"), normal(8, 16))
    torch._dynamo.reset()
    actual = gradients(torch.compile(run, backend="aot_eager"), normal(8, 16), hooks=exact_hooks())
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


def test_gradient_scaler():
    layer = nn.Linear(16, 16)
    optimizer, scaler = torch.optim.SGD(layer.parameters(), lr=0.1), torch.amp.GradScaler("cpu")
    compiled = torch.compile(layer, backend="aot_eager")
    with exact_hooks():
        loss = compiled(normal(8, 16)).exp().mean()
    before = layer.weight.detach().clone()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert not torch.equal(layer.weight, before)


def test_retained_graph():
    x = normal(8, 16)
    with torch._functorch.config.patch(donated_buffer=False):  # else torch raises, as its message says
        with exact_hooks():
            loss = torch.compile(mlp, backend="aot_eager")(x).sum()
        first = torch.autograd.grad(loss, x, retain_graph=True)
        assert torch.equal(first[0], torch.autograd.grad(loss, x)[0])


def test_double_backward_raises_as_in_torch():
    x = normal(4, 4)
    with exact_hooks():
        loss = torch.compile(lambda x: x.exp() * x, backend="aot_eager")(x).sum()
    (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        gradient.sum().backward()


def test_double_backward_in_eager_code():
    x = normal(4, 4)
    second = []
    for hooks in (None, exact_hooks()):
        leaf = x.detach().clone().requires_grad_()
        with hooks or torch.enable_grad():
            loss = (leaf.exp() * leaf.sin()).sum()
            (gradient,) = torch.autograd.grad(loss, leaf, create_graph=True)
        gradient.square().sum().backward()
        second.append(leaf.grad)
    assert torch.equal(*second)


def test_gradient_accumulation_compiles_once(count_compiles):
    layer = nn.Linear(16, 16)
    compiled = torch.compile(layer, backend="aot_eager")
    with graphs_saved() as graphs:
        for _ in range(3):
            with exact_hooks():
                loss = compiled(normal(8, 16)).exp().sum()
            loss.backward()
    once = gradients(layer, normal(8, 16, grad=False), parameters=[layer.weight])
    assert len(graphs) == 1
    assert once[0].isfinite()


def test_no_grad_and_inference_mode():
    compiled = torch.compile(mlp, backend="aot_eager")
    x = normal(8, 16)
    for mode in (torch.no_grad, torch.inference_mode):
        with exact_hooks(), mode():
            torch.testing.assert_close(compiled(x), mlp(x))


def test_compiled_autograd():
    """The compiled forward is packed; torch compiles the backward graph as a part of its own."""
    x = normal(8, 16)
    expected = gradients(mlp, x)
    with torch._dynamo.config.patch(compiled_autograd=True):
        actual = gradients(torch.compile(mlp, backend="aot_eager"), x, hooks=exact_hooks())
    torch.testing.assert_close(actual, expected)


def test_tensor_hooks_and_retained_gradients():
    def run(x, seen):
        y = x.exp()
        y.register_hook(seen.append)
        y.retain_grad()
        return y, y * x

    seen = []
    with exact_hooks():
        y, z = run(normal(4, 4), seen)
    z.sum().backward()
    assert torch.equal(seen[0], y.grad)


def test_the_innermost_hooks_are_used():
    with graphs_saved() as graphs, exact_hooks(), saved.hooks(saved.rule(saved.codecs.bf16())):
        torch.compile(mlp, backend="aot_eager")(normal(8, 16))
    assert {tensor.codec for tensor in graphs[0].activations} == {"bf16"}


def test_hooks_of_torch_in_the_context():
    """`save_on_cpu` is not inlineable: it is torch's error that compiled code cannot have it, or it packs what is saved."""
    x = normal(8, 16)
    with exact_hooks(), torch.autograd.graph.save_on_cpu():
        actual = gradients(torch.compile(mlp, backend="aot_eager"), x)
    torch.testing.assert_close(actual, gradients(mlp, x))


class Counting(nn.Module):
    """Changes a buffer after it was read."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(16))

    def forward(self, x):
        y = (x @ WEIGHT + self.count).tanh()
        self.count.add_(1.0)
        return y


@pytest.mark.parametrize("make", [Counting, lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(16, 16))])
def test_nothing_is_computed_again_from_a_buffer_that_changes(make):
    """In backward it has another value."""
    torch.manual_seed(0)
    module = make()
    hooks = saved.hooks(saved.rule(saved.codecs.recompute()))
    fn = lambda x: module(x).tanh().sum()  # noqa: E731
    assert saved.grad_error(fn, normal(4, 16), hooks=hooks, backend="aot_eager").relative == 0


def dropout_in_checkpoint(x):
    return checkpoint(lambda y: F.dropout(y.exp(), 0.3), x, use_reentrant=False).sin().cos()


@pytest.mark.parametrize("backend", ["aot_eager", "aot_eager_decomp_partition"])
@pytest.mark.parametrize("rules", [(), (saved.rule(EXACT, dtype=torch.float32),), (saved.rule(saved.codecs.recompute()),)])
def test_dropout_in_a_checkpoint(rules, backend):
    """The RNG state is saved under one name and taken under another."""
    expected = gradients(torch.compile(dropout_in_checkpoint, backend=backend), normal(4, 16))
    torch._dynamo.reset()
    actual = gradients(torch.compile(dropout_in_checkpoint, backend=backend), normal(4, 16), hooks=saved.hooks(*rules))
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


@pytest.mark.slow
def test_tensor_subclass():
    from torch.testing._internal.two_tensor import TwoTensor

    def run(x):
        return x.sin().exp() * x

    def train(hooks):
        x = TwoTensor(normal(4, 4).detach(), normal(4, 4).detach() * 2).requires_grad_()
        with hooks or torch.enable_grad():
            out = torch.compile(run, backend="aot_eager")(x)
        out.sum().backward()
        return x.grad

    expected = train(None)
    torch._dynamo.reset()
    actual = train(exact_hooks())
    assert torch.equal(actual.a, expected.a)
    assert torch.equal(actual.b, expected.b)


def test_a_parameter_that_changes_before_backward_raises_as_in_torch():
    weight = nn.Parameter(torch.randn(16, 16))
    with exact_hooks():
        loss = torch.compile(lambda x: (x @ weight).exp() @ weight, backend="aot_eager")(normal(8, 16)).sum()
    with torch.no_grad():
        weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_functional_gradients_refuse_hooks_as_in_torch():
    with pytest.raises(RuntimeError, match="saved tensor hooks"), exact_hooks():
        torch.func.grad(lambda x: mlp(x).sum())(torch.ones(8, 16))


def test_vmap_in_a_graph():
    fn = torch.vmap(lambda row: (row * row.sin()).exp())
    x = normal(8, 16)
    actual = gradients(torch.compile(fn, backend="aot_eager"), x, hooks=exact_hooks())
    torch.testing.assert_close(actual, gradients(fn, x))


def test_jagged_sequence_of_modules_with_one_weight():
    layer = nn.Linear(16, 16)
    model = nn.Sequential(layer, nn.Tanh(), layer, nn.Tanh(), layer)
    expected = gradients(model, normal(8, 16), parameters=list(model.parameters()))
    actual = gradients(
        torch.compile(model, backend="aot_eager"), normal(8, 16), parameters=list(model.parameters()), hooks=exact_hooks()
    )
    torch.testing.assert_close(actual, expected)


@pytest.mark.slow
def test_lstm_cell_unrolled():
    cell = nn.LSTMCell(16, 8)

    def run(x):
        state = torch.zeros(4, 8), torch.zeros(4, 8)
        for step in x.unbind(1):
            state = cell(step, state)
        return state

    expected = gradients(run, normal(4, 5, 16), parameters=list(cell.parameters()))
    actual = gradients(
        torch.compile(run, backend="aot_eager"), normal(4, 5, 16), parameters=list(cell.parameters()), hooks=exact_hooks()
    )
    torch.testing.assert_close(actual, expected)
