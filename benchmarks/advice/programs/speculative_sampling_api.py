"""Speculative sampling with a small draft model; each request brings its own seed so that answers can be replayed."""

from dataclasses import dataclass

import torch
from torch import nn

VOCAB, WINDOW = 40, 16


@dataclass
class Request:
    prompt: list
    max_tokens: int
    seed: int
    temperature: float = 0.8


class WindowLM(nn.Module):
    """Predicts the next token from an exponentially weighted mean of the window; stands for a transformer."""

    def __init__(self, dim, decay):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.mix = nn.Sequential(nn.Linear(dim, dim), nn.Tanh(), nn.Linear(dim, VOCAB))
        self.register_buffer("weights", decay ** torch.arange(WINDOW).flip(0))

    def forward(self, windows):
        x = (self.embed(windows) * self.weights[:, None]).sum(-2) / self.weights.sum()
        return self.mix(x)


class Speculator:
    def __init__(self, draft, target, lookahead=4):
        self.draft, self.target, self.lookahead = draft.eval(), target.eval(), lookahead

    @torch.compile(backend="eager")
    def propose(self, window, temperature, rng):
        tokens, probs = [], []
        for _ in range(self.lookahead):
            p = (self.draft(window) / temperature).softmax(-1)
            token = torch.multinomial(p, 1, generator=rng)
            window = torch.cat([window[1:], token])
            tokens.append(token)
            probs.append(p)
        return torch.cat(tokens), torch.stack(probs)

    @torch.compile(backend="eager")
    def target_probs(self, window, tokens, temperature):
        windows = torch.cat([window, tokens]).unfold(0, WINDOW, 1)
        return (self.target(windows) / temperature).softmax(-1)

    def verify(self, tokens, p, q, rng):
        for place, token in enumerate(tokens.tolist()):
            if torch.rand((), generator=rng) * p[place, token] > q[place, token]:
                rest = (q[place] - p[place]).clamp(min=0)
                return tokens[:place].tolist() + [torch.multinomial(rest, 1, generator=rng).item()]
        return tokens.tolist() + [torch.multinomial(q[-1], 1, generator=rng).item()]

    @torch.no_grad()
    def generate(self, request):
        rng = torch.Generator().manual_seed(request.seed)
        temperature = torch.tensor(request.temperature)
        words, rounds = list(request.prompt), 0
        while len(words) - len(request.prompt) < request.max_tokens:
            window = torch.tensor(([0] * WINDOW + words)[-WINDOW:])
            tokens, p = self.propose(window, temperature, rng)
            q = self.target_probs(window, tokens, temperature)
            words += self.verify(tokens, p, q, rng)
            rounds += 1
        return words[len(request.prompt) :][: request.max_tokens], rounds


def main():
    torch.manual_seed(0)
    speculator = Speculator(WindowLM(16, 0.5), WindowLM(32, 0.7))
    for request in [Request([3, 5], 12, seed=1), Request([8, 1, 30], 10, seed=7, temperature=1.2), Request([3, 5], 12, seed=1)]:
        answer, rounds = speculator.generate(request)
        print(f"{rounds} rounds: {answer}")


if __name__ == "__main__":
    main()
