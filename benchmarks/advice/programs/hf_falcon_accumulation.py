"""Pre-train a small Falcon with gradient accumulation and gradient checkpointing, with a probe of the activations."""

import itertools

import torch
from transformers import FalconConfig, FalconForCausalLM

PAD_LABEL = -100
LENGTH = 14


def make_model():
    config = FalconConfig(
        vocab_size=70,
        hidden_size=32,
        ffn_hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        alibi=False,
        multi_query=True,
        parallel_attn=True,
        bos_token_id=1,
        eos_token_id=2,
    )
    return FalconForCausalLM(config)


def stream(seed):
    """Endless batches: documents of random length, right-padded to LENGTH."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        input_ids = torch.randint(3, 70, (2, LENGTH), generator=generator)
        ends = torch.randint(6, LENGTH + 1, (2, 1), generator=generator)
        real = torch.arange(LENGTH) < ends
        yield {
            "input_ids": input_ids.masked_fill(~real, 0),
            "attention_mask": real.long(),
            "labels": input_ids.masked_fill(~real, PAD_LABEL),
        }


class AccumulatingTrainer:
    def __init__(self, model, accumulation_steps):
        model.gradient_checkpointing_enable({"use_reentrant": False})
        self.model = model.train()
        self.forward = torch.compile(model, backend="eager")
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        self.accumulation_steps = accumulation_steps
        self.steps = 0

    def optimizer_step(self, batches):
        window = list(itertools.islice(batches, self.accumulation_steps))
        tokens = sum(int((batch["labels"][:, 1:] != PAD_LABEL).sum()) for batch in window)
        total, norm = 0.0, 0.0
        probe = self.steps % 3 == 2
        for batch in window:
            out = self.forward(**batch, use_cache=False, num_items_in_batch=tokens, output_hidden_states=probe)
            out.loss.backward()
            total += out.loss.item()
            if probe:
                norm = out.hidden_states[-1].norm().item()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.steps += 1
        return total, tokens, norm


def main():
    torch.manual_seed(0)
    trainer = AccumulatingTrainer(make_model(), accumulation_steps=2)
    batches = stream(seed=3)
    for step in range(4):
        loss, tokens, norm = trainer.optimizer_step(batches)
        print(f"step {step} tokens {tokens} loss {loss:.4f} norm {norm:.4f}")


if __name__ == "__main__":
    main()
