"""Real models: the report is what the forward graph returns, and gradients are those without hooks."""

import pytest
import torch
from support.saved_training import exact_hooks
from torch import nn
from torch._functorch._aot_autograd import graph_compile
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel, ViTConfig, ViTModel

from dynx import saved


def gpt2():
    config = GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=64, n_positions=32, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config).train()
    return lambda ids: model(ids, labels=ids, use_cache=False).loss, torch.randint(0, 64, (2, 16))


def bert():
    config = BertConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        vocab_size=64,
        max_position_embeddings=32,
    )
    model = BertModel(config, add_pooling_layer=False).train()
    return lambda ids: model(ids).last_hidden_state.square().mean(), torch.randint(0, 64, (2, 16))


def vit():
    config = ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=16, patch_size=4
    )
    model = ViTModel(config, add_pooling_layer=False).train()
    return lambda image: model(image).last_hidden_state.square().mean(), torch.randn(2, 3, 16, 16)


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3)
        self.pool, self.head = nn.MaxPool2d(2), nn.Linear(8 * 36, 4)

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x)))
        x = self.pool(torch.relu(self.second(x)))
        return self.head(x.flatten(1)).logsumexp(1).sum()


def conv_net():
    return ConvNet().train(), torch.randn(2, 3, 16, 16)


MODELS = {"GPT-2": gpt2, "BERT": bert, "ViT": vit, "conv net": conv_net}
HOOKS = {
    "no hooks": None,
    "fp8 and bits": saved.hooks(saved.rule(saved.codecs.bits()), saved.rule(saved.codecs.fp8()), validate=False),
    "int8": saved.hooks(saved.rule(saved.codecs.int8(), min_numel=256), validate=False),
}


@pytest.fixture
def bytes_returned(monkeypatch):
    """The bytes of all tensors that forward graphs return for backward, read where torch counts these tensors."""
    found = []
    original = graph_compile._aot_stage2b_fw_compile

    def compile_forward(gm, *args, **kwargs):
        arguments = dict(zip(("inputs", "subclasses", "metadata", "saved"), args, strict=False)) | kwargs
        metadata = arguments.get("fw_metadata", arguments.get("metadata"))
        outputs = gm.graph.output_node().args[0][metadata.num_forward :]
        values = [node.meta["val"] for node in outputs if isinstance(node.meta["val"], torch.Tensor)]
        found.append(sum(value.numel() * value.element_size() for value in values))
        return original(gm, *args, **kwargs)

    monkeypatch.setattr(graph_compile, "_aot_stage2b_fw_compile", compile_forward)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("hooks", HOOKS)
@pytest.mark.parametrize("name", MODELS)
def test_bytes_of_the_report_are_those_that_the_forward_graph_returns(name, hooks, bytes_returned):
    torch.manual_seed(0)
    fn, batch = MODELS[name]()
    report = saved.report(fn, batch, hooks=HOOKS[hooks], backend="aot_eager_decomp_partition")
    assert sum(tensor.saved_bytes for tensor in report.tensors) == sum(bytes_returned)
    with_line = [tensor for tensor in report.tensors if tensor.location is not None]
    assert len(with_line) >= 0.95 * len(report.tensors)
    assert (report.saved_bytes < 0.5 * report.bytes) is (hooks != "no hooks")


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_gradients_with_an_exact_codec_are_equal(name):
    torch.manual_seed(0)
    fn, batch = MODELS[name]()
    assert saved.grad_error(fn, batch, hooks=exact_hooks(), backend="aot_eager_decomp_partition").relative == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_gradients_with_int8_are_close(name):
    torch.manual_seed(0)
    fn, batch = MODELS[name]()
    error = saved.grad_error(fn, batch, hooks=HOOKS["int8"], backend="aot_eager_decomp_partition")
    assert error.cosine > 0.999
