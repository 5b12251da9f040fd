"""Infinities, NaN, and the largest and smallest numbers: backward gets them where they stood, and nowhere else."""

import importlib
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from support.saved_training import gradients, graphs_saved, relative_error

from dynx import saved
from dynx.saved import codecs

sys.path.append(str(Path(__file__).parent.parent / "fuzz"))
fuzz = importlib.import_module("codecs_of_tensors")

LOSSY = [bound.codec for bound in fuzz.BOUNDS]
INF, NAN = float("inf"), float("nan")
WEIGHT = torch.randn(16, 16, generator=torch.Generator().manual_seed(0))
MASK = torch.ones(16, 16, dtype=torch.bool).tril()


def leaf(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), requires_grad=True)


def test_random_tensors():
    """`make fuzz-codecs` packs 10,000."""
    wrong, packed = fuzz.differences(60, seed=0)
    assert wrong == []
    assert min(packed.values()) > 20


@pytest.mark.parametrize("codec", LOSSY, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_each_stands_where_it_stood(codec, dtype):
    """A row with -inf, as of masked logits, was NaN in backward."""
    limits = torch.finfo(dtype)
    tensor = torch.tensor([[1.0, -INF, INF, NAN, 0.0, limits.max, limits.min, -2.0], [1.0, 2, 3, 4, 5, 6, 7, 0]], dtype=dtype)
    if codec.why_not(tensor):
        assert codec.name == "bf16"
        return
    result = codec.unpack(codec.pack(tensor))
    for same in (torch.isnan, torch.isposinf, torch.isneginf):
        assert torch.equal(same(result), same(tensor))
    assert (result[tensor == 0] == 0).all()


def test_the_largest_finite_number_stays_finite():
    tensor = torch.full((2, 8), torch.finfo(torch.float32).min)
    for codec in LOSSY:
        assert codec.unpack(codec.pack(tensor)).isfinite().all(), codec


@pytest.mark.parametrize("codec", [codecs.fp8(), codecs.int8(), codecs.int4()], ids=str)
def test_a_row_of_small_numbers_is_not_all_zeros(codec):
    tensor = torch.tensor([[1e-33, -2e-33, 3e-33, 0.0]])
    assert torch.equal(codec.unpack(codec.pack(tensor)).sign(), tensor.sign())


@pytest.mark.slow
@pytest.mark.parametrize("codec", LOSSY, ids=str)
def test_inductor_keeps_them_too(codec):
    tensor = torch.tensor([[1.0, -INF, INF, NAN, 0.0, 3e38, -3e38, 1e-40], [-INF] * 8, [0.0] * 8, list(map(float, range(8)))])
    result = torch.compile(lambda x: codec.unpack(codec.pack(x)))(tensor)
    for same in (torch.isnan, torch.isposinf, torch.isneginf):
        assert torch.equal(same(result), same(tensor))
    assert result[2].count_nonzero() == 0


def attention(make):
    def attend(x):
        q = (x @ WEIGHT).view(2, 16, 2, 8).transpose(1, 2)
        return F.scaled_dot_product_attention(q, q.sin(), q.cos(), attn_mask=make(x))

    return attend


def in_place(x):
    return torch.zeros(16, 16).masked_fill_(~MASK, -INF)


TWO_CONSTANTS = {
    "a boolean mask": attention(lambda x: MASK),
    "expanded": attention(lambda x: MASK[None, None].expand(2, 2, 16, 16)),
    "where": attention(lambda x: torch.where(MASK, 0.0, -INF)),
    "where of tensors": attention(lambda x: torch.where(MASK, torch.tensor(0.0), torch.finfo(x.dtype).min)),
    "a product": attention(lambda x: (1.0 - (~MASK).to(x.dtype)) * torch.finfo(x.dtype).min),
    "masked_fill_": attention(in_place),
}


@pytest.mark.parametrize("name", TWO_CONSTANTS)
def test_a_mask_of_two_constants_takes_one_bit(name):
    """SDPA turns a boolean mask into floating-point numbers, and saves those."""
    hooks = saved.hooks(saved.rule(codecs.bits()))
    expected = gradients(torch.compile(TWO_CONSTANTS[name], backend="aot_eager"), leaf(2, 16, 16))
    torch._dynamo.reset()
    with graphs_saved() as graphs:
        actual = gradients(torch.compile(TWO_CONSTANTS[name], backend="aot_eager"), leaf(2, 16, 16), hooks=hooks)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)
    (mask,) = (tensor for tensor in graphs[0].tensors if tensor.codec == "bits")
    assert (mask.dtype, mask.bytes, mask.is_exact) == ("float32", 32 * mask.saved_bytes, True)


NOT_TWO_CONSTANTS = {
    "two views of one mask": attention(lambda x: torch.where(MASK[:1], 0.0, 1.0) + torch.where(MASK[:, :1], 0.0, 1.0)),
    "many constants": attention(lambda x: torch.where(MASK, torch.arange(16.0), -INF)),
    "two views with one operator": attention(lambda x: torch.where(MASK[:1], 0.0, 1.0) * torch.where(MASK[:, :1], 3.0, 1.0)),
    "NaN": lambda x: (torch.where(MASK, 1.0, NAN) * (x @ WEIGHT)).nan_to_num(),
    "masked values": lambda x: torch.where(MASK, x @ WEIGHT, -INF).softmax(-1) * x,
}


@pytest.mark.parametrize("name", NOT_TWO_CONSTANTS)
def test_what_only_looks_like_two_constants_stays(name):
    hooks = saved.hooks(saved.rule(codecs.bits(), dtype=torch.float32))
    with graphs_saved() as graphs:
        gradients(torch.compile(NOT_TWO_CONSTANTS[name], backend="aot_eager"), leaf(2, 16, 16), hooks=hooks)
    assert all(tensor.codec is None for tensor in graphs[0].tensors if "where" in tensor.op or "add" in tensor.op)


@pytest.mark.parametrize("backend", ["aot_eager", "aot_eager_decomp_partition"])
def test_the_mask_of_relu_lets_the_gradient_of_nan_pass_as_eager_code_does(backend):
    """Eager code passes the gradient where the output of ReLU is not at most 0, which NaN is not."""

    def masked(x):
        y = F.relu(x.sqrt())
        return torch.where(y.isnan(), 2.0, y).sum() + y[:, :8].nansum()

    x = leaf(4, 16)
    expected = gradients(torch.compile(masked, backend=backend), x)
    torch._dynamo.reset()
    actual = gradients(torch.compile(masked, backend=backend), x, hooks=saved.hooks(saved.rule(codecs.bits())))
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("codec", [codecs.fp8(), codecs.int8(), codecs.int4()], ids=str)
def test_cross_entropy_with_a_masked_vocabulary(codec):
    """Words that may not be predicted have the logit -inf."""
    allowed = torch.arange(16) % 3 != 0

    def loss(x):
        logits = torch.where(allowed, x @ WEIGHT, -INF)
        return F.cross_entropy(logits.tanh().where(allowed, -INF), torch.full((8,), 1))

    expected = gradients(torch.compile(loss, backend="aot_eager"), leaf(8, 16))
    torch._dynamo.reset()
    actual = gradients(torch.compile(loss, backend="aot_eager"), leaf(8, 16), hooks=saved.hooks(saved.rule(codec)))
    assert actual[1].isfinite().all()
    assert relative_error(actual, expected) < 0.5


def test_rows_that_only_a_run_counts():
    """Experts get as many tokens as data decides, also none: a scale for no element would raise."""

    def experts(x, choice):
        mine = x[choice] @ WEIGHT
        return mine.sin().flatten().exp().sum() + (mine * mine.cos()).sum()

    hooks = saved.hooks(saved.rule(codecs.fp8(per="tensor")), saved.rule(codecs.int8()), validate=False)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(experts, backend="aot_eager", fullgraph=True)
        for count in (3, 0, 5):
            choice = torch.arange(8) < count
            actual = gradients(lambda x, choice=choice: compiled(x, choice), leaf(8, 16), hooks=hooks)
            assert (
                relative_error(actual, gradients(lambda x, choice=choice: experts(x, choice), leaf(8, 16))) < 0.05 or not count
            )


def transformer(name):
    """Return the loss of a small model of transformers with padding, and the model."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 64}
    tokens = torch.randint(3, 64, (2, 32))
    padding = torch.ones(2, 32, dtype=torch.long)
    padding[1, :9] = 0
    if name.startswith("Llama"):
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, num_key_value_heads=1))
        options = {"attention_mask": padding} if name == "Llama with padding" else {}
        return lambda: model(tokens, labels=tokens, use_cache=False, **options).loss, model
    if name == "Mixtral":
        config = transformers.MixtralConfig(**sizes, num_key_value_heads=1, num_local_experts=2, sliding_window=8)
        model = transformers.MixtralForCausalLM(config)
        return lambda: model(tokens, labels=tokens, attention_mask=padding, use_cache=False).loss, model
    if name == "T5":
        config = transformers.T5Config(
            vocab_size=64, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2, dropout_rate=0.0, decoder_start_token_id=0
        )
        model = transformers.T5ForConditionalGeneration(config)
        return lambda: model(tokens, labels=tokens, attention_mask=padding).loss, model
    del sizes["vocab_size"]
    config = transformers.ViTConfig(**sizes, image_size=32, patch_size=8, encoder_stride=8)
    model = transformers.ViTForMaskedImageModeling(config)
    patches = torch.arange(16)[None] % 3 == 0
    return lambda: model(torch.ones(1, 3, 32, 32), bool_masked_pos=patches).loss, model


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Llama", "Llama with padding", "Mixtral", "T5", "ViT"])
def test_models_with_masks(name):
    """Llama without padding lost 5 of 12 gradients."""
    loss, model = transformer(name)
    trained = model.train().float().parameters()
    parameters = [parameter for parameter in trained if parameter.requires_grad]
    expected = gradients(torch.compile(loss, backend="aot_eager"), parameters=parameters)
    for codec, limit in ((codecs.fp8(), 0.2), (codecs.int8(), 0.2), (codecs.int4(), 1.0)):
        torch._dynamo.reset()
        hooks = saved.hooks(saved.rule(codecs.bits()), saved.rule(codec, min_numel=256), validate=False)
        actual = gradients(torch.compile(loss, backend="aot_eager"), parameters=parameters, hooks=hooks)
        pairs = [pair for pair in zip(actual, expected, strict=True) if pair[1] is not None]
        assert len(pairs) > 10
        assert all(one.isfinite().all() == other.isfinite().all() for one, other in pairs), codec
        assert relative_error(*(list(side) for side in zip(*pairs, strict=True))) < limit, codec
