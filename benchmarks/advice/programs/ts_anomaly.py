"""Anomaly scores for sensors: an online forecaster whose robust statistics were taken over from a NumPy script."""

import numpy as np
import torch
from torch import nn

WINDOW = 48
SEASONS = {"weekday": 1.0, "saturday": 0.7, "sunday": 0.5}


def season_of(day):
    return "sunday" if day % 7 == 6 else "saturday" if day % 7 == 5 else "weekday"


def robust_scale(values):
    """Clips outliers, removes the trend and scales by the median absolute deviation, as in the old pipeline."""
    low, high = np.percentile(values, [2, 98])
    clipped = np.clip(values, low, high)
    steps = np.arange(len(clipped))
    slope, offset = np.polyfit(steps, clipped, 1)
    clipped = clipped - (steps[:, None] * slope + offset)
    median = np.median(clipped)
    mad = np.median(np.abs(clipped - median))
    return (values - median) / (1.4826 * mad + 1e-6)


class Holt(nn.Module):
    """Double exponential smoothing with a decaying gain, for all sensors at once."""

    def __init__(self, sensors, alpha=0.3, beta=0.1):
        super().__init__()
        self.alpha, self.beta = alpha, beta
        self.updates = 0
        self.register_buffer("level", torch.zeros(sensors))
        self.register_buffer("trend", torch.zeros(sensors))

    def forward(self, x):
        self.updates += 1
        gain = max(self.alpha, 1 / self.updates)
        forecast = self.level + self.trend
        error = x - forecast
        level = forecast + gain * error
        self.trend = self.beta * (level - self.level) + (1 - self.beta) * self.trend
        self.level = level
        return error


@torch.compile(backend="eager")
def score(history, error, season):
    scaled = torch.from_numpy(robust_scale(history.numpy())).to(torch.float32)
    return error.abs() / (scaled.std(0) + 1e-3) * SEASONS[season]


def readings(days, sensors, seed):
    """Six readings a day; one sensor breaks near the end."""
    rng = np.random.default_rng(seed)
    steps = np.arange(days * 6)[:, None]
    values = np.sin(2 * np.pi * steps / 6 + np.arange(sensors)) + 0.1 * rng.standard_normal((days * 6, sensors))
    values[-4:, 1] += 6.0
    return torch.from_numpy(values.astype(np.float32))


def main():
    data = readings(days=14, sensors=3, seed=0)
    model = Holt(sensors=3)
    model.compile(backend="eager")
    alarms = []
    errors = []
    with torch.no_grad():
        for step, x in enumerate(data):
            errors.append(model(x))
            if len(errors) >= WINDOW:
                scores = score(torch.stack(errors[-WINDOW:]), errors[-1], season_of(step // 6))
                if scores.max() > 2.0:
                    alarms.append((step, int(scores.argmax())))
    print("updates", model.updates)
    print("level", [round(value, 3) for value in model.level.tolist()])
    print("alarms", alarms)


if __name__ == "__main__":
    main()
