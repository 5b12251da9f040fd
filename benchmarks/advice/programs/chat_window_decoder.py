"""Chats with a tiny decoder: one token per step, with a key/value cache that grows, until a stop token comes."""
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, DIM, HEADS, LAYERS = 40, 32, 4, 2
STOP_IDS = {0, 3}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.out = nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 64), nn.GELU(), nn.Linear(64, DIM))

    def heads(self, t):
        return t.view(t.shape[0], t.shape[1], HEADS, -1).transpose(1, 2)

    def forward(self, x, past_k, past_v):
        q, k, v = map(self.heads, self.qkv(self.norm1(x)).chunk(3, -1))
        keys = torch.cat([past_k, k], 2)
        values = torch.cat([past_v, v], 2)
        a = F.scaled_dot_product_attention(q, keys, values)
        x = x + self.out(a.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x)), keys, values


class Chat(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.position = nn.Embedding(64, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(DIM, VOCAB)

    def forward(self, token, place, cache):
        x = self.embed(token) + self.position(place)
        fresh = []
        for block, (k, v) in zip(self.blocks, cache):
            x, k, v = block(x, k, v)
            fresh.append((k, v))
        logits = self.head(x[:, -1])
        best = logits.argmax(-1, keepdim=True)
        done = best.item() in STOP_IDS
        return best, fresh, done


def empty_cache(model, prompt):
    """Prefill, not compiled: run the prompt through the layers once."""
    x = model.embed(prompt) + model.position(torch.arange(prompt.shape[1]))
    cache = []
    for block in model.blocks:
        nothing = x.new_zeros(1, HEADS, 0, DIM // HEADS)
        x, k, v = block(x, nothing, nothing)
        cache.append((k, v))
    return cache


torch.manual_seed(2)
model = Chat().eval()
step = torch.compile(model, backend="eager")

# warm up, so that the first user does not wait
warm = torch.tensor([[5, 6, 7, 8, 9]])
step(torch.tensor([[9]]), torch.tensor([5]), [(k.detach(), v.detach()) for k, v in empty_cache(model, warm)])

with torch.no_grad():
    for prompt in ([[9, 11, 2, 7, 15]], [[30, 1, 17, 22, 8]]):
        prompt = torch.tensor(prompt)
        cache = empty_cache(model, prompt)
        token, said = torch.tensor([[prompt[0, -1]]]), []
        for place in range(prompt.shape[1], 16):
            token, cache, done = step(token, torch.tensor([place]), cache)
            said.append(token[0, 0].tolist())
            if done:
                break
        print(said)
