"""Reranks candidate continuations with a small Mixtral; the forward pass is compiled as one graph, as our serving stack asks."""

import torch
import torch.nn.functional as F
from transformers import MixtralConfig, MixtralForCausalLM


def tiny_config():
    return MixtralConfig(
        vocab_size=128,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        num_experts_per_tok=2,
        max_position_embeddings=64,
        use_cache=False,
    )


class Reranker:
    def __init__(self, config, seed=0):
        torch.manual_seed(seed)
        self.model = MixtralForCausalLM(config).eval()
        self.model.set_attn_implementation("sdpa")
        self.model.set_experts_implementation("eager")
        self.forward = torch.compile(self.model, backend="eager", fullgraph=True)

    @torch.inference_mode()
    def score(self, prompt, candidates):
        rows = torch.stack([torch.cat([prompt, candidate]) for candidate in candidates])
        logits = self.forward(input_ids=rows, use_cache=False).logits
        logprobs = F.log_softmax(logits[:, :-1].float(), dim=-1)
        picked = logprobs.gather(-1, rows[:, 1:, None]).squeeze(-1)
        return picked[:, len(prompt) - 1 :].mean(dim=-1)


def main():
    reranker = Reranker(tiny_config())
    generator = torch.Generator().manual_seed(1)
    for query in range(3):
        prompt = torch.randint(3, 128, (10,), generator=generator)
        candidates = torch.randint(3, 128, (4, 6), generator=generator)
        scores = reranker.score(prompt, candidates)
        order = scores.argsort(descending=True).tolist()
        print(f"query {query}: order {order} best {scores.max().item():.3f}")


if __name__ == "__main__":
    main()
