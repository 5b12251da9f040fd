"""Feature pipeline for click sessions: raw event batches become padded, normalized model inputs."""

import contextlib
import logging

import numpy as np
import torch
import torch.nn.functional as F

logging.basicConfig(level=logging.WARNING)
log = logging.getLogger("clicks")


class Stages:
    """How often each stage ran, and in which order."""

    def __init__(self):
        self.trace = []

    @contextlib.contextmanager
    def stage(self, name):
        self.trace.append(name)
        try:
            yield
        finally:
            self.trace.append(f"/{name}")


def batches(n=6):
    rng = np.random.default_rng(7)
    for i in range(n):
        counts = rng.integers(2, 6, size=4)
        counts[-1] = 16 - counts[:-1].sum()
        batch = {
            "counts": torch.from_numpy(counts),
            "dwell": torch.from_numpy(rng.gamma(2.0, 3.0, size=16).astype(np.float32)),
            "item": torch.from_numpy(rng.integers(0, 10, size=16)),
        }
        if i % 3 == 1:  # events of the new app have a price
            batch["price"] = torch.from_numpy(rng.uniform(1, 9, size=16).astype(np.float32))
        yield batch


@torch.compile(backend="aot_eager")
def scale(batch):
    """One row of numbers for each event."""
    dwell = torch.log1p(batch["dwell"])
    if dwell.isnan().any():
        log.warning("broken clock in %d events", dwell.isnan().sum().item())
    columns = [(dwell - dwell.mean()) / dwell.std(), F.one_hot(batch["item"], 10).float().amax(-1)]
    columns.append(torch.log(batch["price"]) if "price" in batch else torch.zeros(16))
    return torch.stack(columns, dim=-1)


@torch.compile(backend="aot_eager")
def pad(rows, counts, width=16):
    """One padded block for each session."""
    sessions = rows.split(counts.tolist())
    return torch.stack([F.pad(s, (0, 0, 0, width - s.shape[0])) for s in sessions])


def prepare(batch, stages):
    with stages.stage("scale"):
        rows = scale(batch)
    with stages.stage("pad"):
        return pad(rows, batch["counts"])


def main():
    stages = Stages()
    total = torch.zeros(3)
    for i, batch in enumerate(batches()):
        inputs = prepare(batch, stages)
        total += inputs.sum((0, 1))
        print(i, tuple(inputs.shape), [round(v, 3) for v in inputs[0].abs().sum(0).tolist()])
    print("stages", len(stages.trace), "total", [round(v, 2) for v in total[1:].tolist()])


if __name__ == "__main__":
    main()
