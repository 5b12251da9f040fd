"""Records the activations of a network with forward hooks and reports their statistics."""

import logging

import torch
from torch import nn

logger = logging.getLogger("probe")


class ActivationProbe:
    def __init__(self, limit=1.5):
        self.limit = limit
        self.peaks = {}
        self.handles = []

    def attach(self, model):
        for name, module in model.named_modules():
            if isinstance(module, nn.ReLU):
                self.handles.append(module.register_forward_hook(self.hook(name)))

    def hook(self, name):
        def observe(module, inputs, output):
            peak = output.abs().max().item()
            self.peaks[name] = max(peak, self.peaks.get(name, 0.0))
            if peak > self.limit:
                logger.warning("activation of %s peaks at %.2f", name, peak)

        return observe

    def detach(self):
        for handle in self.handles:
            handle.remove()
        self.handles.clear()


class Wrapped(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)

    @property
    def width(self):
        return self.inner[0].in_features

    def forward(self, x):
        return self.inner(x) / self.width**0.5


def main():
    torch.manual_seed(0)
    logging.basicConfig(level=logging.ERROR)
    model = Wrapped(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)))
    probe = ActivationProbe()
    probe.attach(model)
    compiled = torch.compile(model, backend="eager")
    x = torch.randn(6, 8)
    with torch.no_grad():
        for scale in (0.5, 1.0, 3.0):
            print(f"scale {scale}: {compiled(scale * x).norm().item():.4f}")
    for name, peak in probe.peaks.items():
        print(f"{name}: peak {peak:.4f}")
    probe.detach()


if __name__ == "__main__":
    main()
