"""MPPI control of a planar two-link arm: sampled torques are rolled out and weighed by their cost."""

import functools

import torch

HORIZON = 6
SAMPLES = 64
LINKS = torch.tensor([1.0, 0.7])


def tip(q):
    """Forward kinematics."""
    total = torch.cumsum(q, -1)
    return torch.stack([(LINKS * total.cos()).sum(-1), (LINKS * total.sin()).sum(-1)], -1)


def reach_cost(state, action, goal, effort):
    q, dq = state.split(2, -1)
    return ((tip(q) - goal) ** 2).sum(-1) + effort * (action**2).sum(-1) + 0.01 * (dq**2).sum(-1)


def wall(side, depth):
    """A penalty for the tip being behind a wall at x = side."""
    return lambda state: torch.relu(side - tip(state[..., :2])[..., 0]) * depth


def dynamics(state, action, dt=0.05):
    q, dq = state.split(2, -1)
    dq = dq + dt * (action - 0.3 * dq)
    return torch.cat([q + dt * dq, dq], -1)


@torch.compile(backend="aot_eager")
def rollout(state, actions, cost, obstacle):
    state = state.expand(actions.shape[0], -1)
    total = torch.zeros(actions.shape[0])
    for step in range(actions.shape[1]):
        state = dynamics(state, actions[:, step])
        total = total + cost(state, actions[:, step]) + obstacle(state)
    return total


class MPPI:
    def __init__(self, temperature=0.5):
        self.temperature = temperature
        self.plan = torch.zeros(HORIZON, 2)
        self.generator = torch.Generator().manual_seed(3)

    def act(self, state, goal, effort, side):
        noise = torch.randn(SAMPLES, HORIZON, 2, generator=self.generator)
        actions = self.plan + noise
        cost = functools.partial(reach_cost, goal=goal, effort=effort)
        total = rollout(state, actions, cost, wall(side, 10.0))
        weights = torch.softmax(-(total - total.min()) / self.temperature, 0)
        self.plan = (weights[:, None, None] * actions).sum(0)
        action, self.plan = self.plan[0], torch.cat([self.plan[1:], self.plan[-1:]])
        return action


def main():
    controller = MPPI()
    state = torch.tensor([0.3, 0.2, 0.0, 0.0])
    goals = [torch.tensor([1.2, 0.9]), torch.tensor([0.4, 1.3]), torch.tensor([1.0, 1.0])]
    with torch.no_grad():
        for leg, goal in enumerate(goals):
            for tick in range(4):
                effort = 0.001 * (leg + 1)
                side = -0.2 - 0.05 * tick
                action = controller.act(state, goal, effort, side)
                state = dynamics(state, action)
            print(f"leg {leg}: tip at {[round(v, 2) for v in tip(state[:2]).tolist()]}")


if __name__ == "__main__":
    main()
