"""A scratch buffer is resized in place with resize_(), which the tracer refuses."""
import torch


class Workspace:
    def __init__(self):
        self.scratch = torch.zeros(2)

    def prepare(self, count):
        self.scratch.resize_(count)  # DX208
        return self.scratch.zero_()

    def cumulative(self, x):
        y = x * 2
        out = self.prepare(6)
        return out + y


torch.manual_seed(0)
workspace = Workspace()
torch.compile(workspace.cumulative, backend="eager")(torch.randn(6))
