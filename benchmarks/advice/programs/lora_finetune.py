"""Fine-tune a frozen causal language model with LoRA: one adapter per task, and a stage in which the norms train too."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM


class LoraLinear(nn.Module):
    def __init__(self, base, rank=4, alpha=8.0, tasks=("chat", "code", "math")):
        super().__init__()
        self.base = base
        self.alpha = alpha
        self.rank = rank
        self.active = tasks[0]
        self.down = nn.ModuleDict({t: nn.Linear(base.in_features, rank, bias=False) for t in tasks})
        self.up = nn.ModuleDict({t: nn.Linear(rank, base.out_features, bias=False) for t in tasks})
        for layer in self.up.values():
            nn.init.normal_(layer.weight, std=0.02)

    def forward(self, x):
        delta = self.up[self.active](self.down[self.active](x))
        return self.base(x) + delta * (self.alpha / self.rank)


def add_lora(model):
    adapters = []
    for layer in model.model.layers:
        for name in ("q_proj", "v_proj"):
            adapter = LoraLinear(getattr(layer.self_attn, name))
            setattr(layer.self_attn, name, adapter)
            adapters.append(adapter)
    return adapters


def smoothed_loss(logits, labels, smoothing):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), label_smoothing=smoothing)


def build():
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64, use_cache=False,
    )
    model = LlamaForCausalLM(config)
    model.requires_grad_(False)
    return model


def main():
    torch.manual_seed(0)
    model = build()
    adapters = add_lora(model)
    trainable = [p for p in model.parameters() if p.requires_grad]
    norms = [p for name, p in model.named_parameters() if "norm" in name]
    optimizer = torch.optim.AdamW(trainable + norms, lr=1e-3)

    @torch.compile(backend="aot_eager")
    def compute_loss(ids, criterion):
        logits = model(input_ids=ids).logits
        return criterion(logits, ids)

    gen = torch.Generator().manual_seed(1)
    losses = []
    for step, task in enumerate(["chat", "chat", "code", "math", "chat", "code"]):
        for adapter in adapters:
            adapter.active = task
        if step == 5:  # second stage
            for p in norms:
                p.requires_grad_(True)
        ids = torch.randint(0, 64, (2, 12), generator=gen)
        loss = compute_loss(ids, lambda logits, labels: smoothed_loss(logits, labels, 0.1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"mean loss {sum(losses) / len(losses):.2f}")


if __name__ == "__main__":
    main()
