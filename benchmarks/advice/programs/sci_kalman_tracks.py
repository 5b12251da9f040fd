"""Smooths the tracks of a moving target with a constant-velocity Kalman filter."""

from typing import NamedTuple

import torch


class Gaussian(NamedTuple):
    mean: torch.Tensor
    cov: torch.Tensor


class ConstantVelocityFilter:
    def __init__(self, dt=0.1, process_noise=0.05, sensor_noise=0.2):
        eye = torch.eye(2, dtype=torch.float64)
        zero = torch.zeros(2, 2, dtype=torch.float64)
        self.transition = torch.cat((torch.cat((eye, dt * eye), 1), torch.cat((zero, eye), 1)))
        self.process = process_noise * torch.eye(4, dtype=torch.float64)
        self.observe = torch.cat((eye, zero), 1)
        self.sensor = sensor_noise * eye

    def predict(self, state):
        mean = self.transition @ state.mean
        cov = self.transition @ state.cov @ self.transition.T + self.process
        return Gaussian(mean, cov)

    def update(self, state, measurement):
        innovation = measurement - self.observe @ state.mean
        gain_cov = self.observe @ state.cov @ self.observe.T + self.sensor
        gain = torch.linalg.solve(gain_cov, self.observe @ state.cov).T
        mean = state.mean + gain @ innovation
        cov = state.cov - gain @ self.observe @ state.cov
        return Gaussian(mean, cov)

    def filter(self, state, measurements):
        means = []
        for k in range(measurements.size(0)):
            state = self.predict(state)
            state = self.update(state, measurements[k])
            means.append(state.mean)
        return torch.stack(means), state


def make_track(length, phase):
    t = torch.arange(length, dtype=torch.float64) * 0.1
    clean = torch.stack((t * 1.5 + phase, torch.sin(t + phase)), dim=-1)
    jitter = 0.1 * torch.stack((torch.cos(17.0 * t), torch.sin(23.0 * t)), dim=-1)
    return clean + jitter


def main():
    kalman = ConstantVelocityFilter()
    run = torch.compile(kalman.filter, backend="eager")
    prior = Gaussian(torch.zeros(4, dtype=torch.float64), torch.eye(4, dtype=torch.float64))
    for length in (8, 12, 9, 15):
        means, state = run(prior, make_track(length, 0.25 * length))
        position = ", ".join(f"{value:.4f}" for value in means[-1, :2].tolist())
        print(f"{length:2d} steps: position ({position}) trace {state.cov.trace().item():.4f}")


if __name__ == "__main__":
    main()
