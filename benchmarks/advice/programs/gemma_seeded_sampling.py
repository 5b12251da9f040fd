"""Samples continuations with Gemma; each request has its own seed so that a user can replay an answer."""

from dataclasses import dataclass

import torch
from transformers import GemmaConfig, GemmaForCausalLM

WINDOW = 12


@dataclass
class Request:
    prompt: list
    seed: int
    new_tokens: int = 5


def load_model():
    config = GemmaConfig(
        vocab_size=80,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=8,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    return GemmaForCausalLM(config).eval()


class Sampler:
    def __init__(self, model, top_k=10, temperature=0.8):
        self.model = model
        self.top_k = top_k
        self.temperature = temperature
        self.generator = torch.Generator()

    @torch.compile(backend="eager", fullgraph=True)
    def next_token(self, window):
        logits = self.model(input_ids=window, use_cache=False).logits[:, -1]
        values, indices = torch.topk(logits / self.temperature, self.top_k)
        probs = torch.softmax(values, dim=-1)
        choice = torch.multinomial(probs, num_samples=1, generator=self.generator)
        return indices.gather(-1, choice)

    @torch.no_grad()
    def sample(self, request):
        self.generator.manual_seed(request.seed)
        tokens = torch.tensor([[2] * (WINDOW - len(request.prompt)) + request.prompt])
        for _ in range(request.new_tokens):
            chosen = self.next_token(tokens[:, -WINDOW:].contiguous())
            tokens = torch.cat([tokens, chosen], dim=1)
        return tokens[0, WINDOW:].tolist()


def main():
    torch.manual_seed(0)
    sampler = Sampler(load_model())
    for request in (Request([5, 9, 31], seed=7), Request([44, 3], seed=8), Request([5, 9, 31], seed=7)):
        print(f"seed {request.seed}: {sampler.sample(request)}")


if __name__ == "__main__":
    main()
