"""Adaptive integrator for a planet that passes a heavy star: the step size is controlled by the error estimate."""

import torch

GM = 1.0
TOLERANCE = 2e-4


def acceleration(pos):
    r2 = (pos * pos).sum(-1, keepdim=True)
    return -GM * pos / (r2 * r2.sqrt())


def midpoint(pos, vel, dt):
    half_pos = pos + 0.5 * dt * vel
    half_vel = vel + 0.5 * dt * acceleration(pos)
    return pos + dt * half_vel, vel + dt * acceleration(half_pos)


@torch.compile(backend="aot_eager")
def controlled_step(pos, vel, dt):
    """One step of size dt and two of dt/2; keeps the step if both agree, shrinks it if they do not."""
    full_pos, _ = midpoint(pos, vel, dt)
    mid_pos, mid_vel = midpoint(pos, vel, dt * 0.5)
    new_pos, new_vel = midpoint(mid_pos, mid_vel, dt * 0.5)
    error = (full_pos - new_pos).abs().max()
    if error > TOLERANCE:
        return pos, vel, dt * 0.5, False
    return new_pos, new_vel, dt * 1.25, True


def simulate(steps=40):
    pos = torch.tensor([[1.0, 0.0], [1.5, 0.2]], dtype=torch.float64)
    vel = torch.tensor([[0.0, 0.7], [0.1, 0.8]], dtype=torch.float64)
    dt, kept, time = 0.02, 0, 0.0
    for _ in range(steps):
        used = dt
        pos, vel, dt, ok = controlled_step(pos, vel, dt)
        if ok:
            kept += 1
            time += float(used)
    return pos, vel, kept, time


def energy(pos, vel):
    return 0.5 * (vel * vel).sum(-1) - GM / pos.norm(dim=-1)


def main():
    pos, vel, kept, time = simulate()
    print("kept", kept, "time", round(time, 4))
    print("pos", [[round(v, 4) for v in row] for row in pos.tolist()])
    print("energy", [round(v, 3) for v in energy(pos, vel).tolist()])


if __name__ == "__main__":
    main()
