"""LinUCB for headlines: one ridge regression per arm; features and click log are numpy, the linear algebra is compiled."""

import numpy as np
import torch


class LinUCB:
    def __init__(self, arms, dim, alpha=0.8, ridge=1.0):
        self.alpha = alpha
        self.A = torch.eye(dim).mul(ridge).repeat(arms, 1, 1)
        self.b = torch.zeros(arms, dim)
        self.pulls = np.zeros(arms, dtype=np.int64)
        self.scores = torch.compile(self.scores, backend="eager")
        self.update = torch.compile(self.update, backend="eager")

    def scores(self, context):
        A_inv = torch.linalg.inv(self.A)
        theta = torch.einsum("kij,kj->ki", A_inv, self.b)
        width = torch.einsum("i,kij,j->k", context, A_inv, context).sqrt()
        return theta @ context + self.alpha * width

    def update(self, arm, context, reward):
        self.A[arm] += torch.outer(context, context)
        self.b[arm] += reward * context

    def choose(self, context):
        scores = self.scores(context).numpy()
        best = np.flatnonzero(scores >= scores.max() - 1e-6)
        arm = best[np.argmin(self.pulls[best])]
        self.pulls[arm] += 1
        return arm


class ClickSimulator:
    def __init__(self, arms, dim, seed):
        self.rng = np.random.default_rng(seed)
        self.preferences = self.rng.normal(size=(arms, dim)).astype(np.float32)

    def visitor(self):
        context = self.rng.normal(size=self.preferences.shape[1]).astype(np.float32)
        return context / np.linalg.norm(context)

    def click(self, context, arm):
        probability = 1.0 / (1.0 + np.exp(-2.0 * self.preferences[arm] @ context))
        return float(self.rng.random() < probability)


def main():
    simulator = ClickSimulator(arms=5, dim=6, seed=3)
    bandit = LinUCB(arms=5, dim=6)
    clicks = 0.0
    for visit in range(120):
        context = simulator.visitor()
        features = torch.from_numpy(context)
        arm = bandit.choose(features)
        reward = simulator.click(context, arm)
        bandit.update(arm, features, torch.tensor(reward))
        clicks += reward
        if (visit + 1) % 30 == 0:
            print(f"visit {visit + 1:3d} ctr {clicks / (visit + 1):.3f} pulls {bandit.pulls.tolist()}")


if __name__ == "__main__":
    main()
