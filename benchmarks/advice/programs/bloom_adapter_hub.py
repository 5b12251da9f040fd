"""One Bloom model with a LoRA adapter per customer; requests say which adapter answers them."""

import torch
from torch import nn
from transformers import BloomConfig, BloomForCausalLM

ADAPTERS = {"legal": 4.0, "medical": 8.0, "retail": 2.0}
RANK = 4


class LoraLinear(nn.Module):
    def __init__(self, base, adapters, rank):
        super().__init__()
        self.base = base
        self.down = nn.ModuleDict({name: nn.Linear(base.in_features, rank, bias=False) for name in adapters})
        self.up = nn.ModuleDict({name: nn.Linear(rank, base.out_features, bias=False) for name in adapters})
        self.scale = {name: alpha / rank for name, alpha in adapters.items()}
        self.active = next(iter(adapters))

    def activate(self, name):
        self.active = name

    def forward(self, x):
        update = self.up[self.active](self.down[self.active](x))
        return self.base(x) + self.scale[self.active] * update


def add_adapters(model, adapters, rank=RANK):
    for block in model.transformer.h:
        block.self_attention.query_key_value = LoraLinear(block.self_attention.query_key_value, adapters, rank)
    return model


def use_adapter(model, name):
    for module in model.modules():
        if isinstance(module, LoraLinear):
            module.activate(name)


class AdapterHub:
    def __init__(self, model):
        self.model = model
        self.compiled = torch.compile(model, backend="eager")

    @torch.no_grad()
    def answer(self, adapter, tokens):
        use_adapter(self.model, adapter)
        logits = self.compiled(input_ids=tokens, use_cache=False).logits[:, -1]
        return logits.argmax(dim=-1).tolist(), logits.logsumexp(dim=-1).mean().item()


def main():
    torch.manual_seed(0)
    config = BloomConfig(vocab_size=96, hidden_size=32, n_layer=2, n_head=4)
    hub = AdapterHub(add_adapters(BloomForCausalLM(config).eval(), ADAPTERS))
    requests = ["legal", "legal", "retail", "medical", "retail", "legal", "medical"]
    for number, adapter in enumerate(requests):
        best, energy = hub.answer(adapter, torch.randint(3, 96, (2, 10)))
        print(f"{number} {adapter}: next {best} energy {energy:.4f}")


if __name__ == "__main__":
    main()
