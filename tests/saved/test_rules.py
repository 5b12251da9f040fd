"""Which saved tensors a rule packs."""

import pytest
import torch
import torch.nn.functional as F
from support.saved_training import EXACT, graphs_saved
from torch import nn

from dynx import saved
from dynx.errors import UsageError


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x):
        hidden = F.gelu(self.up(x))
        return self.down(hidden)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Mlp(), Mlp()
        self.register_buffer("scale", torch.randn(16))

    def forward(self, x):
        return self.second(F.relu(self.first(x) * self.scale)).exp()


def packed_with(*rules, model=None, x=None):
    """Return the saved tensors of a compiled model by name."""
    model, x = model or Model(), torch.randn(8, 16) if x is None else x
    with graphs_saved() as graphs, saved.hooks(*rules, validate=False):
        torch.compile(model, backend="aot_eager")(x)
    return {tensor.name: tensor for tensor in graphs[0].tensors}


def names_packed(tensors):
    return {name for name, tensor in tensors.items() if tensor.codec is not None}


def test_parameters_buffers_and_inputs_are_skipped():
    tensors = packed_with(saved.rule(EXACT))
    kinds = {tensor.kind for tensor in tensors.values() if tensor.codec is None}
    assert kinds == {"param", "buffer", "input"}
    assert {tensor.kind for tensor in tensors.values() if tensor.codec is not None} == {"activation"}


def test_skip_nothing():
    tensors = packed_with(saved.rule(EXACT, skip=()))
    assert names_packed(tensors) == set(tensors)


def test_a_view_of_a_parameter_is_a_parameter():
    weight = nn.Parameter(torch.randn(16, 16))
    with graphs_saved() as graphs, saved.hooks(saved.rule(EXACT)):
        torch.compile(lambda x: (x @ weight.T).exp() @ weight.T.reshape(16, 16), backend="aot_eager")(torch.randn(4, 16))
    assert all(tensor.kind in ("activation", "param", "input") for tensor in graphs[0].tensors)
    assert all(tensor.codec is None for tensor in graphs[0].tensors if tensor.kind == "param")


def test_min_numel():
    tensors = packed_with(saved.rule(EXACT, min_numel=8 * 64))
    assert {tensor.shape for tensor in tensors.values() if tensor.codec is not None} == {(8, 64)}
    small = next(tensor for tensor in tensors.values() if tensor.is_activation and tensor.codec is None)
    assert "min_numel is 512" in small.why


def test_dtype():
    model = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5))
    tensors = packed_with(saved.rule(saved.codecs.bits(), dtype=torch.bool), model=model)
    assert {tensor.dtype for tensor in tensors.values() if tensor.codec is not None} == {"bool"}


def test_module():
    tensors = packed_with(saved.rule(EXACT, module=r"^first\.up"))
    packed = [tensor for tensor in tensors.values() if tensor.codec is not None]
    assert {tensor.module for tensor in packed} == {"first.up: Linear"}


def test_module_by_class():
    tensors = packed_with(saved.rule(EXACT, module=": Linear$"))
    assert {tensor.module.partition(": ")[2] for tensor in tensors.values() if tensor.codec is not None} == {"Linear"}


def test_name():
    tensors = packed_with(saved.rule(EXACT, name="^gelu"))
    assert names_packed(tensors) == {name for name in tensors if name.startswith("gelu")} != set()


def test_line():
    line = Mlp.forward.__code__.co_firstlineno + 1
    tensors = packed_with(saved.rule(EXACT, line=f"test_rules.py:{line}"))
    packed = [tensor for tensor in tensors.values() if tensor.codec is not None]
    assert packed
    assert {tensor.location.line for tensor in packed} == {line}


def test_the_first_rule_that_applies_is_used():
    rules = saved.rule(saved.codecs.int8(), min_numel=8 * 64), saved.rule(saved.codecs.bf16())
    tensors = packed_with(*rules)
    codecs = {tensor.codec for tensor in tensors.values() if tensor.is_activation}
    assert codecs == {"int8(row)", "bf16"}
    assert {tensor.rule for tensor in tensors.values() if tensor.codec} == set(map(str, rules))


def test_a_rule_whose_codec_does_not_take_a_tensor_passes_it_on():
    tensors = packed_with(saved.rule(saved.codecs.fp8(per="block", block=64)), saved.rule(saved.codecs.bf16()))
    assert {tensor.codec for tensor in tensors.values() if tensor.shape[-1] == 16 and tensor.is_activation} == {"bf16"}


def test_rules_that_apply_to_nothing():
    with graphs_saved() as graphs, saved.hooks(saved.rule(EXACT, name="conv")):
        torch.compile(Model(), backend="aot_eager")(torch.randn(8, 16))
    assert graphs[0].unused_rules == ("rule(negated, name='conv')",)


WEIGHT = nn.Parameter(torch.randn(16, 4))


def relu_only(x):
    """Backward reads the output of ReLU only as a mask: the sum needs no values."""
    return F.relu(x * 2).sum()


def relu_and_matmul(x):
    return F.relu(x * 2) @ WEIGHT


def test_mask_only():
    x = torch.randn(8, 16, requires_grad=True)
    for fn, expected in ((relu_only, {"bits"}), (relu_and_matmul, {None})):
        torch._dynamo.reset()
        tensors = packed_with(saved.rule(saved.codecs.bits(), mask_only=True), model=fn, x=x)
        assert {tensor.codec for tensor in tensors.values() if tensor.is_activation} == expected


def test_a_codec_without_zeros_packs_no_mask():
    """1e-6 of noise on a saved ReLU output lets every gradient pass: the error of the gradient was 0.76."""
    noisy = saved.Codec("noisy", lambda x: x + 1e-6, lambda x: x, keeps_zeros=False)
    tensors = packed_with(saved.rule(noisy), model=relu_and_matmul, x=torch.randn(8, 16, requires_grad=True))
    relu = next(tensor for tensor in tensors.values() if tensor.reads_as_mask)
    assert relu.codec is None
    assert "does not keep zeros" in relu.why


def test_a_small_tensor_that_would_grow_stays():
    """A row of one number takes a scale of four bytes more."""
    tensors = packed_with(saved.rule(saved.codecs.fp8()), model=nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16), nn.Tanh()))
    grown = [tensor for tensor in tensors.values() if tensor.is_activation and tensor.saved_bytes > tensor.bytes]
    assert grown == []
    assert any("would store" in tensor.why for tensor in tensors.values())


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": "float32"},
        {"min_numel": -1},
        {"min_numel": 1.5},
        {"name": "("},
        {"module": 3},
        {"line": "model.py"},
        {"mask_only": "yes"},
        {"skip": ("weights",)},
    ],
    ids=str,
)
def test_invalid_options(options):
    with pytest.raises(UsageError):
        saved.rule(saved.codecs.fp8(), **options)


def test_no_codec():
    with pytest.raises(UsageError, match="no codec"):
        saved.rule("fp8")
    with pytest.raises(UsageError, match="no rule"):
        saved.hooks(saved.codecs.fp8())


def test_text():
    text = str(saved.rule(saved.codecs.fp8(), dtype=torch.float32, name="gelu", skip=("param",)))
    assert text == "rule(fp8(row), dtype=torch.float32, name='gelu', skip=('param',))"
