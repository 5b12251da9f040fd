"""A batch without detections returns its argument; from then on torch runs the function eagerly, without a word."""
import torch


class Head:
    def __init__(self):
        self.weight = torch.randn(4, 4)

    @torch.compile(backend="eager", dynamic=True)
    def refine(self, boxes):  # DX303
        if len(boxes) == 0:
            return boxes
        return (boxes @ self.weight).sigmoid()


head = Head()
for count in (5, 7, 0, 6, 9):
    head.refine(torch.rand(count, 4))
