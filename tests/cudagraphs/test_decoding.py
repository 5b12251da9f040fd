"""Language models that decode token by token with a static cache: `generate` of transformers, and loops of one's own."""

from __future__ import annotations

import pytest
import torch
from support.configs import RUNTIMES, config_for
from torch import nn

from dynx import cudagraphs
from dynx.errors import DynxWarning

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

SIZES = {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64}
FAMILIES = {
    "Llama": (transformers.LlamaConfig, {"intermediate_size": 64, "num_key_value_heads": 2}),
    "Qwen3": (transformers.Qwen3Config, {"intermediate_size": 64, "num_key_value_heads": 2, "head_dim": 8}),
    "Gemma2": (
        transformers.Gemma2Config,
        {"intermediate_size": 64, "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 4},
    ),
    "GPTNeoX": (transformers.GPTNeoXConfig, {"intermediate_size": 64}),
    "OPT": (transformers.OPTConfig, {"ffn_dim": 64, "word_embed_proj_dim": 32}),
}
NEW = 9  # tokens of a request


def model_of(family, device):
    make, sizes = FAMILIES[family]
    torch.manual_seed(0)
    config = make(**SIZES, **sizes, eos_token_id=None, pad_token_id=0)
    return transformers.AutoModelForCausalLM.from_config(config).to(device).eval()


def prompts(device, lengths=(5, 3, 7, 5)):
    torch.manual_seed(1)
    return [torch.randint(1, 100, (1, length), device=device) for length in lengths]


def generate(model, prompt, **options):
    kwargs = {"max_new_tokens": NEW, "do_sample": False, "cache_implementation": "static", **options}
    return model.generate(prompt, attention_mask=torch.ones_like(prompt), **kwargs)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_generate_with_the_backend_matches_generate_without_compilation(device, family):
    model = model_of(family, device)
    compile_config = transformers.CompileConfig(
        backend="dynx_cudagraphs", mode=None, fullgraph=False, options={"runtime": RUNTIMES[device]}
    )
    compile_config._compile_all_devices = True  # as for the CPU in the tests of transformers
    for prompt in prompts(device):
        expected = generate(model, prompt, disable_compile=True)
        torch.testing.assert_close(generate(model, prompt, compile_config=compile_config), expected)
    assert cudagraphs.stats().replays > 2 * NEW


class Decoder(nn.Module):
    """Returns the token that follows the one at index `last` of `tokens`, whose first one is at position `start`."""

    def __init__(self, model, size=32):
        super().__init__()
        self.model, self.size = model, size
        self.cache = transformers.StaticCache(config=model.config, max_cache_len=size)

    def forward(self, tokens, start, last):
        for layer in self.cache.layers:
            layer.cumulative_length.copy_(start)  # what a padded prompt has written after it is written over
        positions = start + torch.arange(tokens.shape[1], device=tokens.device)
        mask = torch.arange(self.size, device=tokens.device) <= positions[:, None]
        out = self.model(tokens, position_ids=positions[None], attention_mask=mask[None, None], past_key_values=self.cache)
        return out.logits[:, last].argmax(-1)


def serve(run, prompt, bucket):
    """Decode a request, whose prompt is padded to a size for which there is a recording."""
    length = prompt.shape[1]
    number = [torch.tensor(number, device=prompt.device) for number in range(length + NEW)]
    tokens = [run(nn.functional.pad(prompt, (0, bucket - length)), number[0], number[length - 1][None])]
    for position in range(length, length + NEW - 1):
        tokens.append(run(tokens[-1], number[position], number[0][None]))
    return torch.cat(tokens, 1)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["Llama", "Qwen3", "GPTNeoX"])
def test_several_requests_with_prompts_in_buckets(device, family):
    model = model_of(family, device)
    decoder = Decoder(model)
    with torch.no_grad():
        run = cudagraphs.fast_path(decoder, config=config_for(device))
        requests = prompts(device, lengths=(5, 3, 7, 5, 12, 9))
        expected = [generate(model, prompt, disable_compile=True)[:, prompt.shape[1] :] for prompt in requests]
        for prompt, tokens in zip(requests, expected, strict=True):
            torch.testing.assert_close(serve(run, prompt, bucket=8 if prompt.shape[1] <= 8 else 16), tokens)
    assert len(run.recordings) == 3, "a recording for each bucket, and one for single tokens"


@pytest.mark.slow
def test_a_new_cache_is_recorded_again(device):
    """The cache is an object in an attribute, and its tensors are in objects in its list."""
    model = model_of("Llama", device)
    decoder = Decoder(model)
    (prompt,) = prompts(device, lengths=(5,))
    with torch.no_grad():
        run = cudagraphs.fast_path(decoder, config=config_for(device))
        expected = serve(decoder, prompt, bucket=8)
        for _ in range(3):
            decoder.cache = transformers.StaticCache(config=model.config, max_cache_len=32)
            for _ in range(2):
                torch.testing.assert_close(serve(run, prompt, bucket=8), expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_models_are_captured_without_a_mask(device, family):
    """Without one, transformers reads values to create it, except in a capture."""
    model = model_of(family, device)
    with torch.no_grad():
        run = cudagraphs.fast_path(lambda tokens: model(tokens, use_cache=False).logits, config=config_for(device))
        for _ in range(4):
            tokens = torch.randint(1, 100, (2, 7), device=device)
            torch.testing.assert_close(run(tokens), model(tokens, use_cache=False).logits)
    assert not cudagraphs.stats().skips


class Growing(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model, self.cache = model, transformers.DynamicCache(config=model.config)

    def forward(self, tokens):
        return self.model(tokens, past_key_values=self.cache).logits


@pytest.mark.slow
@pytest.mark.uncaptured
def test_a_dynamic_cache_runs_uncaptured_and_is_named(device):
    """Only `DynamicLayer.update` of the library assigns the tensors, in a list of a cache in an attribute."""
    model = model_of("Llama", device)
    decoder, twin = Growing(model), Growing(model)
    tokens = torch.ones(1, 1, dtype=torch.long, device=device)
    with torch.no_grad():
        run = cudagraphs.fast_path(decoder, config=config_for(device))
        torch.testing.assert_close(run(tokens), twin(tokens))
        with pytest.warns(DynxWarning, match="the function changes attribute keys of a DynamicLayer"):
            torch.testing.assert_close(run(tokens), twin(tokens))
        for _ in range(3):
            torch.testing.assert_close(run(tokens), twin(tokens))
    assert decoder.cache.get_seq_length() == 5
