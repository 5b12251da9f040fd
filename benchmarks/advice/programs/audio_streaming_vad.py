"""Streaming voice activity detector: energy gate with an adaptive noise floor in front of a small GRU classifier."""

import torch
from torch import nn


class StreamingVAD(nn.Module):
    def __init__(self, frame=160, hidden=16, context=6, margin_db=6.0):
        super().__init__()
        self.encoder = nn.Linear(frame, hidden)
        self.cell = nn.GRUCell(hidden, hidden)
        self.head = nn.Linear(2 * hidden, 1)
        self.margin_db = margin_db
        self.context_frames = context
        self.register_buffer("noise_floor", torch.tensor(-30.0))
        self.reset()

    def reset(self):
        self.state = torch.zeros(1, self.cell.hidden_size)
        self.context = []

    def forward(self, frame):
        energy = 10 * torch.log10(frame.pow(2).mean() + 1e-8)
        if energy < self.noise_floor + self.margin_db:
            self.noise_floor = 0.9 * self.noise_floor + 0.1 * energy
            return torch.zeros(1)
        features = torch.tanh(self.encoder(frame))
        self.state = self.cell(features.unsqueeze(0), self.state)
        self.context = self.context[-self.context_frames + 1 :] + [features]
        summary = torch.stack(self.context).mean(dim=0)
        return torch.sigmoid(self.head(torch.cat([self.state[0], summary])))


def stream(num_frames, frame=160):
    time = torch.arange(frame) / 16000
    for i in range(num_frames):
        noise = 0.01 * torch.randn(frame)
        speech = 0.5 * torch.sin(2 * torch.pi * (200 + 20 * i) * time)
        yield noise + speech if i % 5 > 1 else noise


def main():
    torch.manual_seed(0)
    vad = torch.compile(StreamingVAD().eval(), backend="eager")
    with torch.inference_mode():
        for recording in range(2):
            vad.reset()
            scores = [vad(frame).item() for frame in stream(14)]
            print(f"recording {recording}: " + " ".join(f"{score:.4f}" for score in scores))
        print(f"noise floor {vad.noise_floor.item():.4f} dB")


if __name__ == "__main__":
    main()
