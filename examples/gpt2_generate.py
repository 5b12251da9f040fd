"""Generate with GPT-2 of the transformers library (unmodified, random weights): the sequence grows by one in each step."""

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
    for _ in range(6):  # without a key/value cache: each step runs the whole sequence
        logits = compiled(tokens).logits
        tokens = torch.cat([tokens, logits[:, -1:].argmax(-1)], dim=1)
print("generated", tokens.shape[1], "tokens")
