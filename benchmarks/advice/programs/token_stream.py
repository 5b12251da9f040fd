"""A streaming text service: prefill and decode of a small Llama, requests with their own sampling options."""

import time
from dataclasses import dataclass, field

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM


@dataclass
class Request:
    prompt: list
    max_tokens: int
    temperature: float = 1.0
    top_k: int | None = None
    tokens: list = field(default_factory=list)


class Service:
    def __init__(self):
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=64,
        )
        self.model = LlamaForCausalLM(config).eval()
        self.decode = torch.compile(self._decode, backend="eager")
        self.busy = 0.0

    def _decode(self, ids, cache, request):
        start = time.perf_counter()
        logits = self.model(input_ids=ids, past_key_values=cache, use_cache=True).logits[:, -1]
        if request.top_k is not None:
            best = logits.topk(request.top_k).values[:, -1:]
            logits = logits.masked_fill(logits < best, -1e9)
        scaled = logits / request.temperature
        token = (scaled + torch.linspace(0.0, 0.01, 64)).argmax(-1)
        self.busy += time.perf_counter() - start
        return token

    @torch.inference_mode()
    def stream(self, request):
        cache = DynamicCache(config=self.model.config)
        ids = torch.tensor([request.prompt])
        self.model(input_ids=ids[:, :-1], past_key_values=cache, use_cache=True)
        token = ids[:, -1:]
        for _ in range(request.max_tokens):
            next_token = self.decode(token, cache, request)
            request.tokens.append(int(next_token))
            yield request.tokens[-1]
            token = next_token[:, None]


def main():
    service = Service()
    requests = [
        Request([1, 5, 9, 2], max_tokens=5),
        Request([7, 3, 3, 8], max_tokens=4, temperature=0.7),
        Request([4, 4, 1, 6], max_tokens=4, temperature=1.3, top_k=10),
    ]
    for number, request in enumerate(requests):
        print(number, list(service.stream(request)))
    print("measured", service.busy > 0)


if __name__ == "__main__":
    main()
