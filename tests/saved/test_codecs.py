"""Each codec: the error of what it gives back, the bytes that it stores, and which tensors it takes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dynx import saved
from dynx.errors import UsageError
from dynx.saved import codecs

LOSSY = {  # the largest error, relative to the largest element of a row
    "bf16": (codecs.bf16(), 2**-8),
    "fp8": (codecs.fp8(), 2**-4),
    "fp8 e5m2": (codecs.fp8("e5m2"), 2**-3),
    "fp8 tensor": (codecs.fp8(per="tensor"), 2**-4),
    "fp8 block": (codecs.fp8(per="block", block=4), 2**-4),
    "fp8 block with padding": (codecs.fp8(per="block", block=3), 2**-4),
    "int8": (codecs.int8(), 1 / 254),
    "int8 tensor": (codecs.int8(per="tensor"), 1 / 254),
    "int8 block": (codecs.int8(per="block", block=4), 1 / 254),
    "int4": (codecs.int4(), 1 / 14),
}


def there_and_back(codec, tensor):
    return codec.unpack(codec.pack(tensor))


def tensors_of(packed):
    return [leaf for leaf in torch.utils._pytree.tree_leaves(packed) if isinstance(leaf, torch.Tensor)]


@pytest.mark.parametrize("name", LOSSY)
@pytest.mark.parametrize("shape", [(4, 8), (16,), (2, 3, 8), (1, 8)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_error_is_within_its_bound(name, shape, dtype):
    codec, bound = LOSSY[name]
    tensor = torch.randn(shape, dtype=dtype)
    if codec.why_not(tensor):
        assert name == "bf16"
        return
    result = there_and_back(codec, tensor)
    assert (result.shape, result.dtype) == (tensor.shape, tensor.dtype)
    rounding = 2**-7 if dtype is torch.bfloat16 else 2**-10 if dtype is torch.float16 else 1e-6
    top = tensor.abs().max() if "tensor" in name else tensor.abs().amax(-1, keepdim=True)
    assert ((result.double() - tensor.double()).abs() <= (top.double() * (bound + rounding))).all()


@pytest.mark.parametrize("name", LOSSY)
def test_zeros_and_signs_are_kept(name):
    """A ReLU output decides which gradients pass: what is 0 has to stay 0, and nothing may become negative."""
    codec, _ = LOSSY[name]
    tensor = torch.randn(16, 16).relu()
    result = there_and_back(codec, tensor)
    assert (result[tensor == 0] == 0).all()
    assert (result >= 0).all()
    assert (there_and_back(codec, -tensor) <= 0).all()


@pytest.mark.parametrize("name", LOSSY)
def test_rows_of_zeros(name):
    assert there_and_back(LOSSY[name][0], torch.zeros(4, 8)).count_nonzero() == 0


@pytest.mark.parametrize(
    ("codec", "ratio"),
    [(codecs.bf16(), 2), (codecs.fp8(), 3.8), (codecs.fp8(per="tensor"), 3.99), (codecs.int8(), 3.8), (codecs.int4(), 7.4)],
    ids=str,
)
def test_bytes(codec, ratio):
    tensor = torch.randn(64, 512)
    stored = sum(leaf.nbytes for leaf in tensors_of(codec.pack(tensor)))
    assert tensor.nbytes / stored >= ratio


@given(st.integers(1, 40), st.integers(1, 3), st.integers(0, 2**32))
def test_bits_are_exact(last, rows, seed):
    mask = torch.rand(rows, last, generator=torch.Generator().manual_seed(seed)) > 0.5
    codec = codecs.bits()
    packed = codec.pack(mask)
    assert torch.equal(codec.unpack(packed), mask)
    assert sum(leaf.nbytes for leaf in tensors_of(packed)) == rows * -(-last // 8)


def test_bits_of_a_relu_output():
    tensor = torch.randn(4, 16).relu()
    assert torch.equal(there_and_back(codecs.bits(), tensor), (tensor > 0).float())


@pytest.mark.parametrize(
    ("codec", "tensor", "why"),
    [
        (codecs.fp8(), torch.arange(4), "floating-point"),
        (codecs.fp8(), torch.zeros(2, 2).to(torch.float8_e4m3fn), "16 bits or more"),
        (codecs.fp8(), torch.zeros(0, 4), "no elements"),
        (codecs.fp8(), torch.tensor(1.0), "single number"),
        (codecs.fp8(per="block"), torch.zeros(2, 100), "not a multiple"),
        (codecs.bf16(), torch.zeros(2, dtype=torch.float16), "16 bits already"),
        (codecs.int4(), torch.zeros(2, 3), "not an even number"),
        (codecs.bits(), torch.arange(4), "for masks"),
        (codecs.bits(), torch.tensor(True), "single element"),
        (codecs.offload(), torch.zeros(2), "on the CPU already"),
        (codecs.int8(), torch.zeros(2, dtype=torch.complex64), "floating-point"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_a_codec_does_not_take(codec, tensor, why):
    assert why in codec.why_not(tensor)


@pytest.mark.parametrize(
    "make",
    [
        lambda: codecs.fp8("e3m4"),
        lambda: codecs.fp8(per="column"),
        lambda: codecs.int8(per="block", block=0),
        lambda: codecs.int8(per="block", block=2.5),
    ],
)
def test_options_that_do_not_exist(make):
    with pytest.raises(UsageError, match="pass"):
        make()


def test_the_code_of_a_codec_makes_an_equal_one():
    """`saved.plan` prints this code."""
    for codec in (*(codec for codec, _ in LOSSY.values()), codecs.bits(), codecs.offload(), codecs.recompute()):
        again = eval(codec.code, {"saved": saved})
        assert (again.name, again.code) == (codec.name, codec.code)


def test_recompute_has_no_values():
    with pytest.raises(UsageError, match=r"saved\.rule"):
        codecs.recompute().pack(torch.ones(2))
