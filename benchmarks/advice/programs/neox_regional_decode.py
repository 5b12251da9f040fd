"""Greedy decoding with GPT-NeoX; every decoder layer is compiled by itself to keep the cold start short."""

import torch
from transformers import DynamicCache, GPTNeoXConfig, GPTNeoXForCausalLM

NEW_TOKENS = 6
PROMPTS = {
    "weather": [5, 17, 42, 8, 23, 11],
    "recipe": [9, 3, 77, 31, 54, 2],
}


def load_model():
    config = GPTNeoXConfig(
        vocab_size=96,
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    return GPTNeoXForCausalLM(config).eval()


def compile_layers(model):
    for layer in model.gpt_neox.layers:
        layer.compile(backend="eager")
    return model


@torch.no_grad()
def decode(model, prompt):
    tokens = torch.tensor([prompt, prompt[::-1]])
    cache = DynamicCache(config=model.config)
    step_input, generated = tokens, []
    for _ in range(NEW_TOKENS):
        output = model(input_ids=step_input, past_key_values=cache, use_cache=True)
        step_input = output.logits[:, -1:].argmax(dim=-1)
        generated.append(step_input)
    return torch.cat(generated, dim=1)


def main():
    torch.manual_seed(0)
    model = compile_layers(load_model())
    for name, prompt in PROMPTS.items():
        rows = decode(model, prompt).tolist()
        print(name, "|", " ".join(map(str, rows[0])), "|", " ".join(map(str, rows[1])))


if __name__ == "__main__":
    main()
