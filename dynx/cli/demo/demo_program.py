"""A language model that generates text, with three mistakes that slow torch.compile down. `dynx demo` runs it."""

import torch
from torch import nn


def gpt2():
    """Return a 2-layer GPT-2 with random weights if transformers is installed, else `SmallGPT`, which also has 2 layers."""
    try:
        from transformers import GPT2Config, GPT2LMHeadModel
    except ImportError:
        return SmallGPT()
    config = GPT2Config(n_layer=2, n_embd=64, n_head=2, vocab_size=128, bos_token_id=0, eos_token_id=0)
    return GPT2LMHeadModel(config)


class SmallGPT(nn.Module):
    """Two transformer layers with a vocabulary of 128 tokens; returns an object with `logits`, as Hugging Face models do."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(128, 64)
        layer = nn.TransformerEncoderLayer(64, 2, 128, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(64, 128)

    def forward(self, tokens):
        self.logits = self.head(self.layers(self.embed(tokens)))
        return self


class Generator(nn.Module):
    """A module that picks the next token, with a temperature that changes at every step."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.step = 0

    def forward(self, tokens):
        logits = self.model(tokens).logits[:, -1]
        self.step += 1  # mistake: an int attribute is a constant of the graph
        return (logits * (1 + 0.1 * self.step)).argmax(-1, keepdim=True)


def finished(token):
    if token.item() == 0:  # mistake: reading the value breaks the graph
        return True
    return False


def main():
    torch.manual_seed(0)
    generator = torch.compile(Generator(gpt2().eval()), backend="eager")
    done = torch.compile(finished, backend="eager")
    tokens = torch.randint(1, 128, (1, 8))
    with torch.no_grad():
        for _ in range(5):
            token = generator(tokens)  # mistake: the length changes, and is not marked as dynamic
            if done(token):
                break
            tokens = torch.cat([tokens, token], dim=1)
    print("tokens:", tokens.shape[1])


if __name__ == "__main__":
    main()
