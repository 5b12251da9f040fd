"""torch.compile is called anew for each epoch, but with the same backend object, so the compiled code is found again."""
import torch


def counting_backend(gm, example_inputs):
    counting_backend.calls += 1
    return gm.forward


counting_backend.calls = 0


def train_step(w, x):
    return w - 0.1 * (w @ x) * x


torch.manual_seed(0)
w = torch.randn(4)
for epoch in range(3):
    step = torch.compile(train_step, backend=counting_backend)
    w = step(w, torch.randn(4))
assert counting_backend.calls == 1
