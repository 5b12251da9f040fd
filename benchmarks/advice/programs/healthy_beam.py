"""Re-ranks translation candidates and then extends the best ones by beam search, with one compiled decoder and a static cache."""

import logging
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

logger = logging.getLogger("beam")
VOCAB, DIM, HEADS, MAX_LENGTH, BEAMS = 48, 32, 4, 12, 3


@dataclass
class BeamState:
    tokens: torch.Tensor
    scores: torch.Tensor
    length: int


class CachedAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.out = nn.Linear(DIM, DIM)
        self.register_buffer("keys", torch.zeros(BEAMS, HEADS, MAX_LENGTH, DIM // HEADS), persistent=False)
        self.register_buffer("values", torch.zeros_like(self.keys), persistent=False)

    def reorder(self, beams):
        self.keys.copy_(self.keys[beams])
        self.values.copy_(self.values[beams])

    def forward(self, x, position):
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        self.keys.index_copy_(2, position, k)
        self.values.index_copy_(2, position, v)
        visible = torch.arange(MAX_LENGTH) <= position
        attended = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=visible[None, None, None])
        return self.out(attended.transpose(1, 2).flatten(2))


class Decoder(nn.Module):
    def __init__(self, depth=2):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.positions = nn.Embedding(MAX_LENGTH, DIM)
        self.attention = nn.ModuleList(CachedAttention() for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(DIM) for _ in range(depth))
        self.head = nn.Linear(DIM, VOCAB)
        self.steps_run = 0

    def reorder(self, beams):
        for attention in self.attention:
            attention.reorder(beams)

    def forward(self, token, position):
        x = self.embed(token) + self.positions(position)
        for norm, attention in zip(self.norms, self.attention):
            x = x + attention(norm(x), position)
        return self.head(x[:, -1]).log_softmax(-1)


class BeamSearch:
    def __init__(self, model, penalty):
        self.model = model
        self.penalty = penalty
        self.step = torch.compile(model, backend="aot_eager", fullgraph=True)

    def extend(self, state):
        position = torch.tensor([state.length - 1])
        log_probs = self.step(state.tokens[:, state.length - 1 :][:, :1].contiguous(), position)
        self.model.steps_run += 1
        total = state.scores.unsqueeze(1) + log_probs
        scores, flat = total.flatten().topk(BEAMS)
        beams, words = flat // VOCAB, flat % VOCAB
        self.model.reorder(beams)
        tokens = state.tokens[beams]
        tokens[:, state.length] = words
        logger.info("length %d best %.3f", state.length, scores[0].item())
        return BeamState(tokens, scores, state.length + 1)

    @torch.no_grad()
    def run(self, start, length):
        tokens = torch.zeros(BEAMS, MAX_LENGTH, dtype=torch.long)
        tokens[:, 0] = start
        scores = torch.tensor([0.0] + [-1e9] * (BEAMS - 1))
        state = BeamState(tokens, scores, 1)
        while state.length < length:
            state = self.extend(state)
        normalised = state.scores / state.length**self.penalty
        return state.tokens[normalised.argmax(), :length].tolist(), normalised.max().item()


def main():
    torch.manual_seed(0)
    logging.basicConfig(level=logging.WARNING)
    search = BeamSearch(Decoder().eval(), penalty=0.8)
    for start, length in ((3, 8), (11, 12), (29, 5)):
        tokens, score = search.run(start, length)
        print(f"start {start:2d}: {tokens} ({score:.4f})")
    print(f"{search.model.steps_run} decoder steps")


if __name__ == "__main__":
    main()
