"""A sampler method that yields is wrapped with torch.compile afterwards."""
import torch


class Chain:
    def __init__(self, matrix):
        self.matrix = matrix.softmax(-1)

    def states(self, start):  # DX207
        state = start
        while True:
            state = state @ self.matrix
            yield state


torch.manual_seed(0)
chain = Chain(torch.randn(4, 4))
states = torch.compile(chain.states, backend="eager")
walk = states(torch.full((4,), 0.25))
trace = [next(walk) for _ in range(3)]
