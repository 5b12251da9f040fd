"""A decoder whose layers are compiled one by one to keep start-up short, with a key/value cache for generation."""

import torch
import torch.nn.functional as F
from torch import nn


class KVCache:
    def __init__(self, num_layers, batch, heads, max_len, head_dim):
        self.key_cache = [torch.zeros(batch, heads, max_len, head_dim) for _ in range(num_layers)]
        self.value_cache = [torch.zeros(batch, heads, max_len, head_dim) for _ in range(num_layers)]

    def update(self, key, value, layer_idx, cache_position):
        self.key_cache[layer_idx].index_copy_(2, cache_position, key)
        self.value_cache[layer_idx].index_copy_(2, cache_position, value)
        return self.key_cache[layer_idx], self.value_cache[layer_idx]


class Attention(nn.Module):
    def __init__(self, dim, heads, layer_idx):
        super().__init__()
        self.layer_idx = layer_idx
        self.heads = heads
        self.qkv_proj = nn.Linear(dim, 3 * dim)
        self.o_proj = nn.Linear(dim, dim)

    def forward(self, hidden, cache, cache_position, mask):
        batch, length, dim = hidden.shape
        qkv = self.qkv_proj(hidden).view(batch, length, 3, self.heads, dim // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        key, value = cache.update(key, value, self.layer_idx, cache_position)
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.o_proj(out.transpose(1, 2).reshape(batch, length, dim))


class DecoderLayer(nn.Module):
    def __init__(self, dim, heads, layer_idx):
        super().__init__()
        self.input_norm = nn.RMSNorm(dim)
        self.self_attn = Attention(dim, heads, layer_idx)
        self.post_norm = nn.RMSNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim))

    def forward(self, hidden, cache, cache_position, mask):
        hidden = hidden + self.self_attn(self.input_norm(hidden), cache, cache_position, mask)
        return hidden + self.mlp(self.post_norm(hidden))


class Decoder(nn.Module):
    def __init__(self, vocab=40, dim=16, heads=2, num_layers=10, max_len=12):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(DecoderLayer(dim, heads, i) for i in range(num_layers))
        self.lm_head = nn.Linear(dim, vocab)
        self.register_buffer("positions", torch.arange(max_len))

    def forward(self, token, cache, cache_position):
        hidden = self.embed(token)
        mask = self.positions <= cache_position.unsqueeze(-1)
        for layer in self.layers:
            hidden = layer(hidden, cache, cache_position, mask)
        return self.lm_head(hidden[:, -1])


@torch.no_grad()
def main():
    torch.manual_seed(0)
    model = Decoder().eval()
    for layer in model.layers:
        layer.compile(backend="eager")
    cache = KVCache(num_layers=10, batch=2, heads=2, max_len=12, head_dim=8)
    token = torch.tensor([[1], [2]])
    for position in range(4):
        logits = model(token, cache, torch.tensor([position]))
        token = logits.argmax(dim=-1, keepdim=True)
        print(token.flatten().tolist(), f"{logits.sum().item():.4f}")


if __name__ == "__main__":
    main()
