"""Speculative decoding: a draft model proposes a few tokens, the target checks them in one pass; one sampler per request."""
import torch
import torch.nn.functional as F
from torch import nn


class TinyLM(nn.Module):
    def __init__(self, dim, vocabulary=30, context=8):
        super().__init__()
        self.context = context
        self.embed = nn.Embedding(vocabulary, dim)
        self.mix = nn.Conv1d(dim, dim, context)
        self.head = nn.Linear(dim, vocabulary)

    def forward(self, tokens):
        x = self.embed(tokens).transpose(1, 2)
        x = self.mix(F.pad(x, (self.context - 1, 0))).transpose(1, 2)
        return self.head(torch.tanh(x))


def make_filter(top_k, banned):
    """Build the sampler's filter for one request."""

    def keep(logits):
        logits = logits.clone()
        for token in banned:
            logits[..., token] = -float("inf")
        floor = logits.topk(top_k, -1).values[..., -1:]
        return logits.masked_fill(logits < floor, -float("inf"))

    return keep


class Verifier:
    def __init__(self, target):
        self.target = target
        self.accepted = 0

    def check(self, window, proposal, keep):
        """Return how many of the proposed tokens the target would have said, and its own next token."""
        logits = keep(self.target(torch.cat([window, proposal], 1)))
        own = logits[:, window.shape[1] - 1 :].argmax(-1)
        same = (own[:, :-1] == proposal).long().cumprod(1)
        count = same.sum().item()
        return count, own


def draft_tokens(draft, window, count):
    tokens = []
    for _ in range(count):
        token = draft(window)[:, -1:].argmax(-1)
        window = torch.cat([window[:, 1:], token], 1)
        tokens.append(token)
    return torch.cat(tokens, 1)


torch.manual_seed(5)
target, draft = TinyLM(32).eval(), TinyLM(16).eval()
verifier = Verifier(target)
check = torch.compile(verifier.check, backend="eager")
requests = [
    ([3, 9, 1, 4, 4, 7, 2, 8], 5, (0,)),
    ([5, 5, 2, 8, 1, 0, 9, 6], 8, (0,)),
    ([1, 2, 3, 4, 5, 6, 7, 8], 12, (0, 4)),
    ([9, 8, 7, 6, 5, 4, 3, 2], 6, (0,)),
]
with torch.inference_mode():
    for prompt, top_k, banned in requests:
        keep = make_filter(top_k, banned)
        text = list(prompt)
        width = 3
        while len(text) < 24:
            window = torch.tensor([text[-8:]])
            proposal = draft_tokens(draft, window, width)
            count, own = check(window, proposal, keep)
            verifier.accepted += count
            text += own[0, : count + 1].tolist()
        print(text[8:24], verifier.accepted)
