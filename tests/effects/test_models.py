"""Models of transformers, with their caches, and optimizers: no side effect is reported as lost, and none is."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

import dynx

TINY = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 32,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
DECODERS = {
    "llama": {},
    "mistral": {"sliding_window": 4},
    "qwen2": {},
    "qwen3": {"head_dim": 8},
    "gemma": {"head_dim": 8},
    "phi": {"num_key_value_heads": 2},
    "gpt_neox": {},
    "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32},
    "opt": {"ffn_dim": 32, "word_embed_proj_dim": 16},
    "mixtral": {"num_local_experts": 2, "num_experts_per_tok": 1},
    "mamba": {"state_size": 4, "num_hidden_layers": 2},
}
ENCODERS = {
    "bert": {},
    "roberta": {"max_position_embeddings": 40},
    "distilbert": {"dim": 16, "hidden_dim": 32, "n_heads": 2, "n_layers": 2},
    "albert": {"embedding_size": 8},
    "vit": {"image_size": 8, "patch_size": 4},
}


def made(auto, name, more):
    torch.manual_seed(0)
    config = AutoConfig.for_model(name, **{**TINY, **more})
    return auto.from_config(config, attn_implementation="eager").eval()


def lost_in(run):
    torch._dynamo.reset()
    with dynx.watch() as watch:
        result = run()
    return result, [effect for frame in watch.side_effects for effect in frame.effects if effect.is_lost], watch.side_effects


@pytest.mark.slow
@pytest.mark.parametrize("name", DECODERS)
def test_decoding_with_a_cache(name):
    model = made(AutoModelForCausalLM, name, DECODERS[name])
    prompt = torch.tensor([[3, 4, 5, 6]])

    def decode(forward):
        ids, cache, logits = prompt, {}, []
        for _ in range(3):
            output = forward(ids, use_cache=True, **cache)
            name_of_cache = "past_key_values" if hasattr(output, "past_key_values") else "cache_params"
            cache = {name_of_cache: output[name_of_cache]}
            ids = output.logits[:, -1:].argmax(-1)
            logits.append(output.logits)
        return logits

    with torch.no_grad():
        expected = decode(model)
        got, lost, frames = lost_in(lambda: decode(torch.compile(model, backend="eager")))
    torch.testing.assert_close(got, expected)
    assert lost == []
    assert frames or name == "mamba"  # its cache holds only tensors, which the graph changes


@pytest.mark.parametrize("name", ENCODERS)
def test_encoders(name):
    model = made(AutoModel, name, ENCODERS[name])
    x = torch.randn(2, 3, 8, 8) if name == "vit" else torch.randint(3, 32, (2, 6))
    with torch.no_grad():
        expected = model(x).last_hidden_state
        got, lost, _ = lost_in(lambda: torch.compile(model, backend="eager")(x).last_hidden_state)
    torch.testing.assert_close(got, expected)
    assert lost == []


OPTIMIZERS = {
    "SGD": {"lr": 0.1, "momentum": 0.9},
    "Adam": {"lr": 0.1},
    "AdamW": {"lr": 0.1, "amsgrad": True},
    "Adagrad": {"lr": 0.1},
    "Adadelta": {},
    "Adamax": {},
    "ASGD": {},
    "NAdam": {},
    "RAdam": {},
    "RMSprop": {"momentum": 0.1},
    "Rprop": {},
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("foreach", [True, False])
def test_optimizers(name, foreach):
    def train(wrap):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        optimizer = getattr(torch.optim, name)(model.parameters(), foreach=foreach, **OPTIMIZERS[name])
        step = wrap(optimizer.step)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(4, 3)).square().sum().backward()
            step()
        return [*model.parameters()]

    expected = train(lambda step: step)
    got, lost, _ = lost_in(lambda: train(lambda step: torch.compile(step, backend="eager")))
    torch.testing.assert_close(got, expected)
    assert lost == []
