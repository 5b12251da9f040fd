"""Joint controllers of a small robot arm: each joint has its own controller object with modes and a history of errors."""

from enum import Enum

import torch


class Mode(Enum):
    IDLE = "idle"
    HOLD = "hold"
    TRACK = "track"


class JointController:
    def __init__(self, name, gains, limit):
        self.name = name
        self.kp, self.kd = gains
        self.limit = limit
        self.mode = Mode.TRACK
        self.errors = []

    def reset(self):
        self.errors.clear()

    @torch.compile(backend="eager", fullgraph=True)
    def torque(self, target, angle, speed):
        error = target - angle
        self.errors.append(error)
        if len(self.errors) > 4:
            self.errors.pop(0)
        smooth = torch.stack(self.errors).mean(0)
        out = self.kp * smooth - self.kd * speed
        if self.mode is Mode.HOLD:
            out = out * 0.5
        elif self.mode is Mode.IDLE:
            out = torch.zeros_like(out)
        return out.clamp(-self.limit, self.limit)


def joints():
    gains = torch.tensor([[8.0, 1.0], [6.0, 0.8], [4.0, 0.5]])
    return [
        JointController(name, gains[i], torch.tensor(limit))
        for i, (name, limit) in enumerate([("base", 3.0), ("shoulder", 2.5), ("elbow", 1.0)])
    ]


def simulate(controllers, steps=16, dt=0.05):
    copies = torch.linspace(-0.2, 0.2, 5)  # five arms with disturbed starts
    angles = [copies.clone() for _ in controllers]
    speeds = [torch.zeros(5) for _ in controllers]
    for step in range(steps):
        target = torch.full((5,), 0.6 if step < 8 else -0.3)
        for i, joint in enumerate(controllers):
            if step == 9:
                joint.mode = Mode.HOLD
            torque = joint.torque(target, angles[i], speeds[i])
            speeds[i] = speeds[i] + dt * torque
            angles[i] = angles[i] + dt * speeds[i]
        if step % 5 == 4:
            print(step, [round(a.mean().item(), 3) for a in angles])
    return angles


def main():
    controllers = joints()
    angles = simulate(controllers)
    for joint, angle in zip(controllers, angles):
        joint.reset()
        print(f"{joint.name}: {angle.min().item():.3f} to {angle.max().item():.3f}, {joint.mode.value}")


if __name__ == "__main__":
    main()
