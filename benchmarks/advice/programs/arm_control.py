"""Joint-space controller of a six-axis arm: the control law is compiled, the supervisor picks mode and limits in each tick."""

import enum
import functools
from dataclasses import dataclass, field

import torch

JOINTS = 6


class Mode(enum.Enum):
    HOLD = "hold"
    TRACK = "track"
    COMPLIANT = "compliant"


@dataclass
class State:
    q: torch.Tensor = field(default_factory=lambda: torch.zeros(JOINTS))
    dq: torch.Tensor = field(default_factory=lambda: torch.zeros(JOINTS))
    integral: torch.Tensor = field(default_factory=lambda: torch.zeros(JOINTS))


class JointLimitError(RuntimeError):
    pass


KP = torch.tensor([60.0, 60.0, 45.0, 20.0, 12.0, 8.0])
KD = torch.tensor([8.0, 8.0, 6.0, 3.0, 2.0, 1.0])
INERTIA = torch.tensor([2.0, 2.2, 1.4, 0.6, 0.3, 0.2])
SOFT_STOP = 2.9


def saturate(torque, limit):
    return limit * torch.tanh(torque / limit)


def check_joints(q):
    if q.abs().max() > SOFT_STOP:
        raise JointLimitError("soft stop")


@torch.compile(backend="eager")
def control(state, target, mode, limiter):
    check_joints(state.q)
    error = target - state.q
    integral = state.integral + 0.01 * error
    if mode is Mode.HOLD:
        torque = 1.5 * KP * error - 2.0 * KD * state.dq + 4.0 * integral
    elif mode is Mode.TRACK:
        torque = KP * error - KD * state.dq + 2.0 * integral
    else:
        torque = 0.3 * KP * error - KD * state.dq
    torque = limiter(torque)
    dq = state.dq + 0.01 * torque / INERTIA
    return state.q + 0.01 * dq, dq, integral


def schedule(tick):
    """What the supervisor asks for: hold, track a sine, then comply while a person is near."""
    if tick < 6:
        return Mode.HOLD, 40.0 if tick < 3 else 50.0
    if tick < 14:
        return Mode.TRACK, 60.0
    return Mode.COMPLIANT, 15.0


def main():
    state = State()
    phase = torch.linspace(0.0, 2.0, JOINTS)
    for tick in range(20):
        mode, limit = schedule(tick)
        target = 0.4 * torch.sin(torch.tensor(0.1 * tick) + phase)
        limiter = functools.partial(saturate, limit=limit)
        try:
            q, dq, integral = control(state, target, mode, limiter)
        except JointLimitError:
            print("stopped at tick", tick)
            break
        state = State(q, dq, integral)
        if tick % 5 == 4:
            print(tick, mode.value, " ".join(f"{v:+.3f}" for v in state.q.tolist()))


if __name__ == "__main__":
    main()
