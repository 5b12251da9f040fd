"""Small versions of common models return what eager returns, in inference and in training."""

from __future__ import annotations

import copy

import pytest
import torch
import transformers
from torch import nn

from dynx import cudagraphs


def mlp():
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)), lambda: torch.randn(3, 8)


def convolutions():
    layers = [nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 2)]
    return nn.Sequential(*layers), lambda: torch.randn(2, 3, 8, 8)


class Logits(nn.Module):
    def __init__(self, model, name):
        super().__init__()
        self.model, self.name = model, name

    def forward(self, x):
        return getattr(self.model(x), self.name)


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=32, n_positions=8, n_embd=8, n_layer=2, n_head=2, use_cache=False, bos_token_id=0, eos_token_id=0
    )
    dropped = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    config.update(dropped)
    return Logits(transformers.GPT2LMHeadModel(config), "logits"), lambda: torch.randint(0, 32, (2, 5))


TINY = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def bert():
    model = transformers.BertModel(transformers.BertConfig(vocab_size=32, **TINY))
    return Logits(model, "last_hidden_state"), lambda: torch.randint(0, 32, (2, 5))


def vit():
    model = transformers.ViTModel(transformers.ViTConfig(image_size=8, patch_size=4, **TINY))
    return Logits(model, "last_hidden_state"), lambda: torch.randn(2, 3, 8, 8)


MODELS = [mlp, convolutions, gpt2, bert, vit]


@pytest.fixture(params=MODELS, ids=lambda make: make.__name__)
def model(request, device):
    torch.manual_seed(0)
    module, inputs = request.param()
    return module.to(device), lambda: inputs().to(device)


@pytest.mark.parametrize("inputs", ["memcpy_node"], indirect=True)
def test_compiled_model_inference_matches_eager(compiled, model):
    module, inputs = model
    module.eval()
    run = compiled(module)
    with torch.no_grad():
        for _ in range(4):
            x = inputs()
            torch.testing.assert_close(run(x), module(x))
    assert (cudagraphs.stats().recordings, cudagraphs.stats().replays) == (1, 3)


@pytest.mark.slow
@pytest.mark.parametrize("inputs", ["copy"], indirect=True)
def test_compiled_model_training_matches_eager(compiled, model):
    module, inputs = model
    twin = copy.deepcopy(module)
    run = compiled(module)
    optimizers = [torch.optim.SGD(trained.parameters(), lr=0.01) for trained in (module, twin)]
    for _ in range(4):
        x = inputs()
        for call, optimizer in zip((run, twin), optimizers, strict=True):
            optimizer.zero_grad()
            call(x).square().mean().backward()
            optimizer.step()
    for param, twin_param in zip(module.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(param, twin_param)
    assert (cudagraphs.stats().recordings, cudagraphs.stats().replays) == (2, 6)
