"""`self.activation` is a new bound-method object each time it is read, but always of the same function and instance."""
import torch


class Net:
    def __init__(self, width):
        self.weight = torch.randn(width, width)
        self.slope = torch.tensor(0.2)

    def activation(self, x):
        return torch.where(x > 0, x, x * self.slope)

    def run(self, x):
        return dense(x, self.weight, self.activation)


@torch.compile(backend="eager")
def dense(x, weight, activation):
    h = x @ weight
    return activation(h)


torch.manual_seed(0)
net = Net(4)
for _ in range(4):
    net.run(torch.randn(2, 4))
