"""Tags sounds from recorded clips and from a live microphone with an Audio Spectrogram Transformer."""

from collections import deque

import numpy as np
import torch
from transformers import ASTConfig, ASTForAudioClassification

MEL_BINS, FRAMES = 16, 32
LABELS = ["speech", "siren", "dog", "music"]


def mel_filters(bins, fft):
    edges = np.linspace(0, fft // 2, bins + 2)
    freqs = np.arange(fft // 2 + 1)[:, None]
    up = (freqs - edges[:-2]) / (edges[1:-1] - edges[:-2])
    down = (edges[2:] - freqs) / (edges[2:] - edges[1:-1])
    return np.clip(np.minimum(up, down), 0, None).astype(np.float32)


class LogMel:
    def __init__(self, fft=64, hop=32):
        self.fft, self.hop = fft, hop
        self.filters = mel_filters(MEL_BINS, fft)
        self.window = np.hanning(fft).astype(np.float32)

    def __call__(self, wave):
        starts = range(0, self.hop * FRAMES, self.hop)
        frames = np.stack([wave[s : s + self.fft] * self.window for s in starts])
        power = np.abs(np.fft.rfft(frames, axis=1)) ** 2
        return np.log(power @ self.filters + 1e-6).astype(np.float32)


class Microphone:
    """Keeps the latest frames as columns, the way the spectrogram is drawn on the screen."""

    def __init__(self, extractor):
        self.extractor = extractor
        self.columns = deque(maxlen=FRAMES)

    def push(self, wave):
        for row in self.extractor(wave):
            self.columns.append(row)

    def picture(self):
        return torch.from_numpy(np.stack(list(self.columns), axis=1))


class Tagger:
    def __init__(self, model, mean=-4.0, std=4.5):
        self.model = model.eval()
        self.mean, self.std = mean, std
        self.scores = torch.compile(self._scores, backend="eager")

    def _scores(self, features):
        features = (features - self.mean) / (2 * self.std)
        return self.model(input_values=features).logits.softmax(-1)

    @torch.no_grad()
    def tag(self, features):
        scores = self.scores(features)[0]
        best = scores.argmax().item()
        return LABELS[best], scores[best].item()


def tone(freq, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(2048) / 16000
    return (np.sin(2 * np.pi * freq * t) + 0.05 * rng.standard_normal(t.size)).astype(np.float32)


def main():
    torch.manual_seed(0)
    config = ASTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        patch_size=8,
        frequency_stride=4,
        time_stride=4,
        max_length=FRAMES,
        num_mel_bins=MEL_BINS,
        num_labels=len(LABELS),
    )
    tagger = Tagger(ASTForAudioClassification(config))
    extractor = LogMel()
    for index, freq in enumerate([440, 1200, 3000]):
        clip = torch.from_numpy(extractor(tone(freq, index)))
        name, score = tagger.tag(clip.unsqueeze(0))
        print(f"clip {index}: {name} {score:.3f}")
    microphone = Microphone(extractor)
    for tick in range(3):
        microphone.push(tone(600 + 500 * tick, 10 + tick))
        live = microphone.picture().T.unsqueeze(0)
        name, score = tagger.tag(live)
        print(f"live {tick}: {name} {score:.3f}")


if __name__ == "__main__":
    main()
