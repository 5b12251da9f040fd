"""Decodes with an int8 weight-only transformer whose blocks are compiled one by one (regional compilation)."""

import torch
import torch.nn.functional as F
from torch import nn


class Int8Linear(nn.Module):
    """Per-tensor symmetric weight-only quantisation of a Linear without bias."""

    def __init__(self, linear):
        super().__init__()
        weight = linear.weight.detach()
        self.scale = weight.abs().max().item() / 127
        self.register_buffer("qweight", torch.round(weight / self.scale).to(torch.int8))

    def forward(self, x):
        return F.linear(x, self.qweight.to(x.dtype)) * self.scale


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.RMSNorm(dim)
        self.norm2 = nn.RMSNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.up = nn.Linear(dim, 4 * dim, bias=False)
        self.down = nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x, position, mask, cache):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        keys, values = cache
        keys.index_copy_(2, position, k)
        values.index_copy_(2, position, v)
        attended = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(F.silu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    def __init__(self, vocab=96, dim=32, heads=4, depth=10, max_length=16):
        super().__init__()
        self.max_length = max_length
        self.shape = (1, heads, max_length, dim // heads)
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.norm = nn.RMSNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)

    def make_caches(self):
        return [(torch.zeros(self.shape), torch.zeros(self.shape)) for _ in self.blocks]

    def forward(self, token, position, caches):
        mask = (torch.arange(self.max_length) <= position)[None, None, None]
        x = self.embed(token)
        for block, cache in zip(self.blocks, caches):
            x = block(x, position, mask, cache)
        return self.head(self.norm(x))[:, -1]


def quantize_(module):
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, Int8Linear(child))
        else:
            quantize_(child)


def compile_regions(model, **options):
    for block in model.blocks:
        block.compile(**options)


@torch.inference_mode()
def generate(model, prompt, new_tokens):
    caches = model.make_caches()
    tokens = list(prompt)
    for index in range(len(prompt) + new_tokens - 1):
        logits = model(torch.tensor([[tokens[index]]]), torch.tensor([index]), caches)
        if index + 1 == len(tokens):
            tokens.append(logits.argmax(-1).item())
    return tokens


def main():
    torch.manual_seed(0)
    model = Decoder().eval()
    quantize_(model.blocks)
    compile_regions(model, backend="eager")
    for prompt in ([5, 17, 42], [80, 3]):
        print(prompt, "->", generate(model, prompt, new_tokens=8)[len(prompt) :])


if __name__ == "__main__":
    main()
