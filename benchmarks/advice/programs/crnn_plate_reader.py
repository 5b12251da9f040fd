"""Reads number plates with a CRNN and greedy CTC decoding, exported as one graph for the edge device."""

import string

import torch
from torch import nn

CHARSET = "-" + string.digits + string.ascii_uppercase
BLANK = 0


class CRNN(nn.Module):
    def __init__(self, height=16, hidden=24):
        super().__init__()
        self.cnn = nn.Sequential(
            nn.Conv2d(1, 12, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(12, 24, 3, 1, 1), nn.ReLU(), nn.MaxPool2d((2, 1))
        )
        self.mix = nn.Conv1d(24 * (height // 4), hidden, 5, padding=2)
        self.head = nn.Linear(hidden, len(CHARSET))

    def forward(self, image):
        features = self.cnn(image).flatten(1, 2)
        return self.head(torch.relu(self.mix(features)).transpose(1, 2)).log_softmax(-1)


class PlateReader(nn.Module):
    def __init__(self, model, min_confidence=0.035):
        super().__init__()
        self.model = model
        self.min_confidence = min_confidence

    def forward(self, image):
        log_probs = self.model(image)
        best, path = log_probs.max(-1)
        confidence = best.mean(1).exp()
        tokens = []
        for row, score in zip(path, confidence):
            if score < self.min_confidence:
                tokens.append(row.new_zeros(0))
                continue
            repeated = torch.cat((row.new_zeros(1, dtype=torch.bool), row[1:] == row[:-1]))
            tokens.append(row.masked_fill(repeated, BLANK))
        return tokens, confidence


def to_text(tokens):
    return "".join(CHARSET[token] for token in tokens.tolist() if token != BLANK)


def render(rng, plates, width=64):
    canvas = torch.rand(len(plates), 1, 16, width, generator=rng) * 0.2
    for row, plate in enumerate(plates):
        for column, char in enumerate(plate):
            canvas[row, 0, 3:13, 2 + 9 * column : 9 + 9 * column] += CHARSET.index(char) / len(CHARSET)
    return canvas


def main():
    torch.manual_seed(5)
    rng = torch.Generator().manual_seed(1)
    reader = torch.compile(PlateReader(CRNN().eval()), backend="eager", fullgraph=True)
    with torch.inference_mode():
        for plates in (["AB123CD", "ZX900QT"], ["HH42", "B0SS"]):
            tokens, confidence = reader(render(rng, plates))
            for plate, row, score in zip(plates, tokens, confidence.tolist()):
                print(f"{plate}: {to_text(row)!r} ({score:.3f})")


if __name__ == "__main__":
    main()
