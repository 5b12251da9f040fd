"""Each epoch compiles the same function again with a backend closure of its own."""
import torch


def make_backend(log):
    def backend(gm, example_inputs):
        log.append(len(gm.graph.nodes))
        return gm.forward

    return backend


def train_step(w, x):
    return w - 0.1 * (w @ x) * x


torch.manual_seed(0)
w, sizes = torch.randn(4), []
for epoch in range(3):
    step = torch.compile(train_step, backend=make_backend(sizes))
    w = step(w, torch.randn(4))  # DX112
