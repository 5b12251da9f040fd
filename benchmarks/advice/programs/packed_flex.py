"""Pretrains a tiny decoder on packed documents; FlexAttention keeps tokens from attending across document borders."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

SEQ = 128
VOCAB = 50
EOS = 0


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim, bias=False)

    def forward(self, x, block_mask):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.proj(flex_attention(q, k, v, block_mask=block_mask).transpose(1, 2).flatten(2))


class Decoder(nn.Module):
    def __init__(self, dim=32, heads=2, depth=2):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.norms = nn.ModuleList(nn.RMSNorm(dim) for _ in range(depth))
        self.attention = nn.ModuleList(Attention(dim, heads) for _ in range(depth))
        self.head = nn.Linear(dim, VOCAB, bias=False)

    def forward(self, tokens, block_mask):
        x = self.embed(tokens)
        for norm, attention in zip(self.norms, self.attention):
            x = x + attention(norm(x), block_mask)
        return self.head(x)


def document_mask(tokens):
    documents = (tokens == EOS).cumsum(-1)

    def causal_within_document(b, h, q_idx, kv_idx):
        return (q_idx >= kv_idx) & (documents[b, q_idx] == documents[b, kv_idx])

    return create_block_mask(causal_within_document, tokens.shape[0], None, SEQ, SEQ, device="cpu")


def sliding_window(width):
    def causal_window(b, h, q_idx, kv_idx):
        return (q_idx >= kv_idx) & (q_idx - kv_idx < width)

    return create_block_mask(causal_window, None, None, SEQ, SEQ, device="cpu")


def packed_batches(count, generator):
    for _ in range(count):
        tokens = torch.randint(1, VOCAB, (2, SEQ + 1), generator=generator)
        tokens[torch.rand(tokens.shape, generator=generator) < 0.05] = EOS
        yield tokens


class Pretrainer:
    def __init__(self, model):
        self.model = model
        self.forward = torch.compile(model, backend="eager")

    @torch.no_grad()
    def perplexity(self, tokens, mask):
        logits = self.forward(tokens[:, :-1], mask)
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).exp().item()


def main():
    torch.manual_seed(0)
    pretrainer = Pretrainer(Decoder())
    for step, tokens in enumerate(packed_batches(4, torch.Generator().manual_seed(0))):
        print(f"batch {step} ppl {pretrainer.perplexity(tokens, document_mask(tokens[:, :-1])):.3f}")
    held_out = next(packed_batches(1, torch.Generator().manual_seed(9)))
    for width in (16, 32, 64):
        print(f"window {width} ppl {pretrainer.perplexity(held_out, sliding_window(width)):.3f}")


if __name__ == "__main__":
    main()
