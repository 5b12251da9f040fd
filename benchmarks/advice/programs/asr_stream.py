"""Streams microphone chunks through a causal conv + GRU encoder and prints the greedy CTC transcript as it grows."""

import torch
from torch import nn

ALPHABET = "_abcdefghijklmnopqrstuvwxyz "
CHUNK = 1600
HOP = 160


class CausalFrontend(nn.Module):
    def __init__(self, dim, kernel=400):
        super().__init__()
        self.left = kernel - HOP
        self.conv = nn.Conv1d(1, dim, kernel, stride=HOP)
        self.norm = nn.LayerNorm(dim)

    def forward(self, samples, context):
        x = torch.cat([context, samples], dim=-1)
        features = self.norm(self.conv(x.unsqueeze(1)).abs().log1p().transpose(1, 2))
        return features, x[:, -self.left :]


class StreamingEncoder(nn.Module):
    def __init__(self, dim=24, layers=2):
        super().__init__()
        self.frontend = CausalFrontend(dim)
        self.rnn = nn.ModuleList(nn.GRUCell(dim, dim) for _ in range(layers))
        self.ctc = nn.Linear(dim, len(ALPHABET))

    def forward(self, samples, state=None):
        if state is None:
            context = samples.new_zeros(samples.size(0), self.frontend.left)
            hidden = [samples.new_zeros(samples.size(0), cell.hidden_size) for cell in self.rnn]
        else:
            context, hidden = state
        features, context = self.frontend(samples, context)
        outputs = []
        for frame in features.unbind(1):
            carried = []
            for cell, h in zip(self.rnn, hidden):
                frame = cell(frame, h)
                carried.append(frame)
            hidden = carried
            outputs.append(frame)
        return self.ctc(torch.stack(outputs, 1)).log_softmax(-1), (context, hidden)


class GreedyCTC:
    def __init__(self):
        self.last = 0
        self.text = ""

    def push(self, log_probs):
        for token in log_probs[0].argmax(-1).tolist():
            if token not in (0, self.last):
                self.text += ALPHABET[token]
            self.last = token


def microphone(seconds, generator):
    audio = torch.randn(1, int(16000 * seconds), generator=generator).cumsum(-1).sin()
    return audio.split(CHUNK, dim=-1)


def main():
    torch.manual_seed(0)
    encoder = StreamingEncoder().eval()
    step = torch.compile(encoder, backend="eager")
    for session in range(2):
        decoder, state = GreedyCTC(), None
        with torch.inference_mode():
            for number, samples in enumerate(microphone(0.85, torch.Generator().manual_seed(session))):
                log_probs, state = step(samples, state)
                decoder.push(log_probs)
                if number % 4 == 0:
                    print(f"[{session}] chunk {number}: {decoder.text!r}")
        print(f"[{session}] final: {decoder.text!r}")


if __name__ == "__main__":
    main()
