"""Train GPT-2 of the transformers library (unmodified, random weights) with a learning-rate schedule, at three lengths."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
config = GPT2Config(n_layer=1, n_embd=64, n_head=2, vocab_size=256, bos_token_id=0, eos_token_id=0)
model = GPT2LMHeadModel(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=12)


@torch.compile(backend="eager")
def loss_of(tokens):
    return model(tokens, labels=tokens).loss


for step in range(6):
    tokens = torch.randint(1, 256, (2, (16, 24, 32)[step % 3]))
    loss = loss_of(tokens)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    schedule.step()
print("trained 6 steps, learning rate", f"{schedule.get_last_lr()[0]:.5f}")
