"""Greedy text generation with a small GPT-2: a hand-written decoding loop around a compiled model."""

import torch
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel

PROMPTS = ["the cat sat", "a long day ended"]
VOCAB = "abcdefghijklmnopqrstuvwxyz .,"


def encode(text):
    return torch.tensor([[VOCAB.index(c) for c in text]])


def decode(ids):
    return "".join(VOCAB[i] for i in ids)


def build():
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(VOCAB), n_positions=64, n_embd=32, n_layer=2, n_head=2,
        bos_token_id=0, eos_token_id=28, attn_implementation="sdpa",
    )
    return GPT2LMHeadModel(config).eval()


@torch.no_grad()
def generate(model, prompt, new_tokens=8):
    ids = encode(prompt)
    cache = DynamicCache(config=model.config)
    out = model(input_ids=ids, past_key_values=cache, use_cache=True)
    tokens = ids[0].tolist()
    for _ in range(new_tokens):
        token = out.logits[:, -1:].argmax(-1)
        tokens.append(token.item())
        out = model(input_ids=token, past_key_values=cache, use_cache=True)
    return decode(tokens)


def main():
    model = build()
    compiled = torch.compile(model, backend="eager")
    for prompt in PROMPTS:
        print(repr(generate(compiled, prompt)))


if __name__ == "__main__":
    main()
