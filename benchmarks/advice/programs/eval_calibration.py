"""An evaluation harness: several multiple-choice tasks, accuracy, calibration error and a bootstrap interval."""

from dataclasses import dataclass
from typing import Callable

import torch
import torch.nn.functional as F

METRICS: dict[str, Callable] = {}


def metric(name):
    def register(function):
        METRICS[name] = torch.compile(function, fullgraph=True, backend="aot_eager")
        return function

    return register


@dataclass(frozen=True)
class Task:
    name: str
    choices: int
    questions: int
    skill: float
    seed: int

    def run(self):
        """Stands in for a model: log-likelihoods of the choices, and the right answers."""
        generator = torch.Generator().manual_seed(self.seed)
        answers = torch.randint(0, self.choices, (self.questions,), generator=generator)
        scores = torch.randn(self.questions, self.choices, generator=generator)
        return scores + self.skill * F.one_hot(answers, self.choices), answers


@metric("acc")
def accuracy(scores, answers):
    return (scores.argmax(-1) == answers).float().mean()


@metric("nll")
def likelihood(scores, answers):
    return F.cross_entropy(scores, answers)


@metric("ece")
def calibration_error(scores, answers, bins=10):
    confidence, predicted = scores.softmax(-1).max(-1)
    correct = (predicted == answers).float()
    edges = torch.linspace(0, 1, bins + 1)
    total = torch.zeros(())
    for low, high in zip(edges[:-1], edges[1:]):
        in_bin = (confidence > low) & (confidence <= high)
        share = in_bin.float().mean()
        if share > 0:
            gap = confidence[in_bin].mean() - correct[in_bin].mean()
            total = total + gap.abs() * share
    return total


@metric("brier")
def brier(scores, answers):
    probabilities = scores.softmax(-1)
    return (probabilities - F.one_hot(answers, scores.shape[-1])).square().sum(-1).mean()


def bootstrap(correct, repeats, seed):
    generator = torch.Generator().manual_seed(seed)
    index = torch.randint(0, len(correct), (repeats, len(correct)), generator=generator)
    means = correct[index].mean(1)
    return means.quantile(0.025).item(), means.quantile(0.975).item()


def evaluate(task):
    scores, answers = task.run()
    row = {name: function(scores, answers).item() for name, function in METRICS.items()}
    row["interval"] = bootstrap((scores.argmax(-1) == answers).float(), repeats=200, seed=task.seed)
    return row


def main():
    tasks = [
        Task("arc", choices=4, questions=120, skill=1.5, seed=1),
        Task("boolq", choices=2, questions=150, skill=2.5, seed=2),
        Task("hellaswag", choices=4, questions=200, skill=0.8, seed=3),
    ]
    for task in tasks:
        row = evaluate(task)
        low, high = row.pop("interval")
        metrics = " ".join(f"{name} {value:.3f}" for name, value in row.items())
        print(f"{task.name:10} {metrics} [{low:.2f}, {high:.2f}]")


if __name__ == "__main__":
    main()
