"""Train a character language model with truncated BPTT and sample from it: a GRU cell in a Python loop over lines of a poem."""

import torch
import torch.nn as nn
import torch.nn.functional as F

TEXT = """the tide goes out
the tide comes in again
and all the sand is new
no one remembers the names we wrote"""
CHARS = sorted(set(TEXT))


def encode(line):
    return torch.tensor([CHARS.index(c) for c in line])


class CharModel(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.embed = nn.Embedding(len(CHARS), width)
        self.cell = nn.GRUCell(width, width)
        self.out = nn.Linear(width, len(CHARS))

    def step(self, token, state):
        state = self.cell(self.embed(token), state)
        return self.out(state), state


model = None


@torch.compile(backend="eager")
def line_loss(ids, state):
    loss = 0.0
    for position in range(len(ids) - 1):
        logits, state = model.step(ids[position], state)
        loss = loss + F.cross_entropy(logits, ids[position + 1])
    return loss / (len(ids) - 1), state


@torch.compile(backend="eager")
def next_char(token, state, temperature):
    logits, state = model.step(token, state)
    choice = int(logits.argmax()) if temperature == 0 else torch.multinomial((logits / temperature).softmax(0), 1).item()
    return CHARS[choice], state


def main():
    global model
    torch.manual_seed(0)
    model = CharModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(2):
        state = torch.zeros(24)
        for line in TEXT.split("\n"):
            loss, state = line_loss(encode(line), state.detach())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    state, char, text = torch.zeros(24), "t", ""
    with torch.no_grad():
        for _ in range(4):
            char, state = next_char(torch.tensor(CHARS.index(char)), state, 0)
            text += char
    print(f"loss {loss.item():.1f} {text!r}")


if __name__ == "__main__":
    main()
