"""Draws images token by token with a small Llama over a codebook, conditioned on a class."""

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

CODES = 64
SIDE = 4


def build():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=CODES + 10,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        attn_implementation="eager",
    )
    return LlamaForCausalLM(config).eval()


class ImageSampler:
    def __init__(self, model):
        self.model = model
        self.decode = torch.compile(self._decode, backend="eager")

    def _decode(self, token, cache, scale):
        out = self.model(input_ids=token, past_key_values=cache, use_cache=True)
        logits = out.logits[:, -1, :CODES]
        conditional, free = logits.chunk(2)
        return free + scale * (conditional - free)

    @torch.no_grad()
    def draw(self, label, scale):
        cache = DynamicCache()
        token = torch.tensor([[CODES + label], [CODES]])
        codes = []
        for _ in range(SIDE * SIDE):
            logits = self.decode(token, cache, scale)
            best = logits.argmax(-1)
            codes.append(best.item())
            token = best.repeat(2, 1)
        return torch.tensor(codes).reshape(SIDE, SIDE)


def main():
    sampler = ImageSampler(build())
    for label, scale in [(1, 1.0), (2, 1.5), (3, 3.0), (4, 4.5)]:
        image = sampler.draw(label, scale)
        print(f"class {label}, scale {scale}: row 0 {image[0].tolist()}, {image.unique().numel()} codes")


if __name__ == "__main__":
    main()
