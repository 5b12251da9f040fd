"""A small chat server: requests with their own sampling settings are answered by a Llama with a KV cache."""

from dataclasses import dataclass

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

TOP_K = 8


@dataclass
class SamplingParams:
    penalty: float = 1.2
    max_tokens: int = 6


def build_model():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        attn_implementation="sdpa",
    )
    return LlamaForCausalLM(config).eval()


@torch.compile(backend="eager", dynamic=True)
def penalize(logits, context, penalty):
    """Make the tokens that occurred less likely."""
    seen = torch.zeros_like(logits, dtype=torch.bool).index_fill(0, context, True)
    lowered = torch.where(logits > 0, logits / penalty, logits * penalty)
    return torch.where(seen, lowered, logits)


@torch.compile(backend="eager")
def pick(logits, noise, temperature=0.1):
    values, indices = torch.topk(logits, TOP_K)
    choice = torch.argmax(values - temperature * torch.log(-torch.log(noise)))
    return indices[choice]


class Engine:
    def __init__(self, model):
        self.model = model
        self.decode = torch.compile(model.forward, backend="eager")
        self.gen = torch.Generator().manual_seed(4)

    @torch.inference_mode()
    def generate(self, prompt, params):
        cache = DynamicCache(config=self.model.config)
        out = self.model(input_ids=prompt[None], past_key_values=cache, logits_to_keep=1)
        context = prompt
        for _ in range(params.max_tokens):
            logits = penalize(out.logits[0, -1], context, params.penalty)
            token = pick(logits, torch.rand(TOP_K, generator=self.gen))[None]
            context = torch.cat([context, token])
            out = self.decode(input_ids=token[None], past_key_values=cache)
        return context[len(prompt) :].tolist()


def main():
    engine = Engine(build_model())
    requests = [
        (torch.tensor([5, 9, 2, 44, 17]), SamplingParams()),
        (torch.tensor([8, 8, 3, 60, 21, 7, 90]), SamplingParams(max_tokens=8)),
        (torch.tensor([1, 33, 71]), SamplingParams(max_tokens=3)),
    ]
    for number, (prompt, params) in enumerate(requests):
        print(f"request {number}: {engine.generate(prompt, params)}")


if __name__ == "__main__":
    main()
