"""An ensemble of Gray-Scott reaction-diffusion runs, one object per set of parameters."""

import torch

SETS = {
    "spots": (0.030, 0.062), "stripes": (0.022, 0.051), "maze": (0.029, 0.057), "holes": (0.039, 0.058),
    "waves": (0.014, 0.045), "worms": (0.078, 0.061), "mitosis": (0.0367, 0.0649), "coral": (0.0545, 0.062),
    "chaos": (0.026, 0.051), "solitons": (0.030, 0.060), "pulse": (0.025, 0.060), "negatons": (0.046, 0.0594),
}
DIFFUSION = {"u": 0.16, "v": 0.08}


def laplacian(x):
    around = x.roll(1, -1) + x.roll(-1, -1) + x.roll(1, -2) + x.roll(-1, -2)
    return around - 4 * x


class GrayScott:
    def __init__(self, name, side=32, dt=1.0):
        self.name = name
        self.dt = dt
        self.u = torch.ones(side, side)
        self.v = torch.zeros(side, side)
        centre = slice(side // 2 - 4, side // 2 + 4)
        self.u[centre, centre], self.v[centre, centre] = 0.5, 0.25

    @torch.compile(backend="eager")
    def advance(self, steps=4):
        feed, kill = SETS[self.name]
        u, v = self.u, self.v
        for _ in range(steps):
            reaction = u * v * v
            u = u + self.dt * (DIFFUSION["u"] * laplacian(u) - reaction + feed * (1 - u))
            v = v + self.dt * (DIFFUSION["v"] * laplacian(v) + reaction - (feed + kill) * v)
        self.u, self.v = u, v

    def coverage(self):
        return (self.v > 0.1).float().mean().item()


def main():
    runs = [GrayScott(name) for name in SETS]
    for _ in range(5):
        for run in runs:
            run.advance()
    for run in runs:
        print(f"{run.name:9s} covers {run.coverage():.3f}, mean u {run.u.mean():.4f}")


if __name__ == "__main__":
    main()
