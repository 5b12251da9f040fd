"""no_grad is used inside the compiled function, where it is part of the graph, and every call runs in the same mode."""
import torch


class MovingAverage:
    def __init__(self, size, decay):
        self.shadow = torch.zeros(size)
        self.decay = decay

    def update(self, weight):
        with torch.no_grad():
            mixed = self.shadow * self.decay + weight * (1 - self.decay)
        return mixed


torch.manual_seed(0)
average = MovingAverage(6, 0.9)
update = torch.compile(average.update, backend="eager")
weight = torch.randn(6, requires_grad=True)
for _ in range(3):
    average.shadow = update(weight)
    (weight * average.shadow).sum().backward()
    with torch.no_grad():
        weight -= 0.1 * weight.grad
