"""Tone detector: audio blocks from a recorder are filtered, windowed and measured with a compiled front end."""

import math

import torch
import torch.nn.functional as F

RATE = 8000
BLOCK = 512


def recorder(blocks=5):
    """Interleaved stereo blocks, as the sound card gives them: the last driver version delivers int16."""
    t = torch.arange(BLOCK) / RATE
    for i in range(blocks):
        left = torch.sin(2 * math.pi * (440 + 60 * i) * t)
        right = 0.5 * torch.sin(2 * math.pi * 1000 * t)
        stereo = torch.stack([left, right], dim=-1)
        if i == 3:
            stereo = (stereo * 32767).to(torch.int16)
        yield stereo


def lowpass(taps=31, cutoff=0.3):
    n = torch.arange(taps) - (taps - 1) / 2
    kernel = torch.sinc(cutoff * n) * cutoff * torch.hann_window(taps, periodic=False)
    return kernel / kernel.sum()


KERNEL = lowpass()
WINDOW = torch.hann_window(BLOCK)


@torch.compile
def features(block):
    """Spectrum of the first channel and level of the mix."""
    signal = block.float()
    if block.dtype == torch.int16:
        signal = signal / 32767
    signal = F.conv1d(signal.view(1, 1, -1), KERNEL.view(1, 1, -1), padding=15).view(-1)
    windowed = signal * WINDOW
    power = windowed.square().mean()
    energy = windowed.cumsum(0)
    return windowed, power, energy


def peak(windowed):
    spectrum = torch.fft.rfft(windowed).abs()
    return spectrum.argmax().item() * RATE / BLOCK


def report(source, channel):
    windowed, power, _ = features(channel)
    db = 10 * math.log10(power.item())
    print(f"{source}: peak {peak(windowed):.0f} Hz, {db:.1f} dB")


def main():
    calibration = torch.sin(2 * math.pi * 750 * torch.arange(BLOCK) / RATE)
    report("calibration", calibration)
    for i, stereo in enumerate(recorder()):
        report(f"block {i} left", stereo[:, 0])
        report(f"block {i} right", stereo[:, 1])
    report("calibration", calibration)


if __name__ == "__main__":
    main()
