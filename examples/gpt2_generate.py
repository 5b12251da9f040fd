"""GPT-2 of transformers with random weights, unmodified: generation with a growing sequence."""

import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel

layers = int(sys.argv[1]) if len(sys.argv) > 1 else 4
torch.manual_seed(0)
config = GPT2Config(n_layer=layers, n_embd=128, n_head=4, vocab_size=256, bos_token_id=0, eos_token_id=0)
model = GPT2LMHeadModel(config).eval()
compiled = torch.compile(model, backend="eager")

tokens = torch.randint(1, 256, (1, 8))
with torch.no_grad():
    for _ in range(6):  # without a cache of keys and values: the whole sequence again, one longer
        logits = compiled(tokens).logits
        tokens = torch.cat([tokens, logits[:, -1:].argmax(-1)], dim=1)
print("generated", tokens.shape[1], "tokens")
