"""Runs short clips through a rack of effects (gain, soft clip, low-pass, tremolo) before they go to a classifier."""
import enum
import math

import numpy as np
import torch

RATE = 8000


class Drive(enum.Enum):
    CLEAN = "clean"
    WARM = "warm"
    FUZZ = "fuzz"


class Preset:
    def __init__(self, name, drive, gain_db, cutoff):
        self.name = name
        self.drive = drive
        self.gain_db = gain_db
        self.cutoff = cutoff


PRESETS = [
    Preset("vocal", Drive.CLEAN, 0.0, 3000.0),
    Preset("bass", Drive.WARM, 3.0, 900.0),
    Preset("lead", Drive.FUZZ, 9.0, 2500.0),
]


def saturate(audio, drive):
    if drive is Drive.CLEAN:
        return audio
    if drive is Drive.WARM:
        return torch.tanh(audio)
    return torch.clamp(4 * audio, -0.8, 0.8)


def design_lowpass(cutoff, taps=31):
    n = np.arange(taps) - (taps - 1) / 2
    kernel = np.sinc(2 * cutoff / RATE * n) * np.hamming(taps)
    return kernel / kernel.sum()


@torch.compile(backend="eager")
def render(audio, kernel, drive, gain):
    audio = saturate(audio * gain, drive)
    audio = torch.nn.functional.conv1d(audio[:, None], kernel, padding="same")[:, 0]
    peak = audio.abs().max()
    if peak > 1.0:
        audio = audio / peak
    time = torch.arange(audio.shape[-1]) / RATE
    tremolo = 1 - 0.2 * torch.sin(2 * math.pi * 5 * time)
    return audio * tremolo


def main():
    torch.manual_seed(11)
    clips = [0.3 * torch.randn(4, RATE // 4) for _ in range(3)]
    for round_number in range(2):
        for preset, clip in zip(PRESETS, clips):
            kernel = torch.tensor(design_lowpass(preset.cutoff), dtype=torch.float32)[None, None]
            gain = 10 ** (preset.gain_db / 20)
            out = render(clip, kernel, preset.drive, torch.tensor(gain))
            print(f"{round_number} {preset.name:6s} rms {out.pow(2).mean().sqrt().item():.3f}")


if __name__ == "__main__":
    main()
